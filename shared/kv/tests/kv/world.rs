//! A small world of prompts, and random changes in it: a tree of blocks whose hashes are given by their number.
//!
//! Small, so that random histories often meet: the same block in several rows, removed below a child, stored twice.

use proptest::prelude::*;
use switchtower_ids::{SequenceHash, Tier};
use switchtower_kv::event::KvEvent;

/// How many blocks the world has.
pub(crate) const BLOCKS: u64 = 40;

/// Block numbers count from 1; the parent of `number`, if it has one. Two roots, long chains, some branching.
fn parent_number(number: u64) -> Option<u64> {
    match number {
        1 | 2 => None,
        _ if number.is_multiple_of(4) => Some(number / 2),
        _ => Some(number - 1),
    }
}

/// The hash of a block; spread out, with one pair whose high halves are equal.
pub(crate) fn hash(number: u64) -> SequenceHash {
    SequenceHash(if number < 3 { number } else { number.wrapping_mul(0xD134_2543_DE82_EF95) })
}

/// The prompt that ends with block `number`: the numbers of its blocks.
fn path_numbers(number: u64) -> Vec<u64> {
    let mut path: Vec<u64> = std::iter::successors(Some(number), |at| parent_number(*at)).collect();
    path.reverse();
    path
}

/// The prompt that ends with block `number`.
pub(crate) fn path(number: u64) -> Vec<SequenceHash> {
    path_numbers(number).into_iter().map(hash).collect()
}

/// Every prompt of the world, each also with a block at its end that nobody has.
pub(crate) fn queries() -> impl Iterator<Item = Vec<SequenceHash>> {
    let extended = |number| path(number).into_iter().chain([hash(1000 + number)]).collect();
    (1..=BLOCKS).flat_map(move |number| [path(number), extended(number)])
}

/// Whether the event puts a block of this world where it does not belong. If nobody holds the block, no receiver can
/// know: a hash that says which prefix it stands for is taken at its word.
pub(crate) fn is_lie(event: &KvEvent) -> bool {
    let KvEvent::Stored { parent, blocks, .. } = event else {
        return false;
    };
    let parents = std::iter::once(*parent).chain(blocks.iter().copied().map(Some));
    let belongs = |(before, block): (Option<SequenceHash>, &SequenceHash)| {
        (1..=BLOCKS)
            .find(|number| hash(*number) == *block)
            .is_none_or(|number| parent_number(number).map(hash) == before)
    };
    !parents.zip(blocks).all(belongs)
}

pub(crate) fn tier() -> impl Strategy<Value = Tier> {
    prop_oneof![4 => Just(Tier::Device), 2 => Just(Tier::Host), 1 => Just(Tier::Disk)]
}

/// A chain of one prompt, from some depth on.
fn stored_chain() -> impl Strategy<Value = KvEvent> {
    let depth = prop_oneof![Just(0), any::<prop::sample::Index>().prop_map(|at| at.index(40))];
    (tier(), 1..=BLOCKS, depth).prop_map(|(tier, number, depth)| {
        let mut blocks = path(number);
        let depth = depth.min(blocks.len() - 1);
        let blocks_before = blocks.drain(..depth).next_back();
        KvEvent::Stored { tier, parent: blocks_before, blocks }
    })
}

/// A chain that is usually wrong somewhere.
fn stored_nonsense() -> impl Strategy<Value = KvEvent> {
    let parent = prop::option::of((1..=BLOCKS).prop_map(hash));
    (tier(), parent, prop::collection::vec((1..=BLOCKS + 4).prop_map(hash), 0..4))
        .prop_map(|(tier, parent, blocks)| KvEvent::Stored { tier, parent, blocks })
}

fn removed_some() -> impl Strategy<Value = KvEvent> {
    (tier(), prop::collection::vec((1..=BLOCKS).prop_map(hash), 0..5))
        .prop_map(|(tier, blocks)| KvEvent::Removed { tier, blocks })
}

/// The last blocks of a prompt, in either order: what a cache evicts.
fn removed_tail() -> impl Strategy<Value = KvEvent> {
    (tier(), 1..=BLOCKS, 1..12_usize, any::<bool>()).prop_map(|(tier, number, count, backwards)| {
        let mut blocks = path(number);
        blocks.drain(..blocks.len().saturating_sub(count));
        if backwards {
            blocks.reverse();
        }
        KvEvent::Removed { tier, blocks }
    })
}

/// Changes that make sense in this world, though not always in this order.
pub(crate) fn change() -> impl Strategy<Value = KvEvent> {
    prop_oneof![
        8 => stored_chain(),
        4 => removed_tail(),
        2 => removed_some(),
        1 => Just(KvEvent::Cleared),
    ]
}

/// Any event, nonsense included.
pub(crate) fn event() -> impl Strategy<Value = KvEvent> {
    prop_oneof![20 => change(), 3 => stored_nonsense(), 1 => Just(KvEvent::Unknown)]
}
