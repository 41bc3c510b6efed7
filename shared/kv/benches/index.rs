//! What the prefix index costs, and how that grows with it: `cargo bench -p switchtower-kv`. Prints the memory of each size
//! first.
//!
//! Blocks are chains of 128, as prompts of 2,048 tokens in blocks of 16 are, on 64 rows in turn. Queries ask for 128
//! blocks of chains in random order, so that the index is not in the processor's caches when it is larger than those.

use divan::{Bencher, counter::ItemsCount};
use std::hint::black_box;
use switchtower_ids::{SequenceHash, Tier};
use switchtower_kv::{
    event::KvEvent,
    index::{Overlap, PrefixIndex, RowSlot},
};

/// Blocks in the index.
const SIZES: [u64; 3] = [100_000, 1_000_000, 10_000_000];
const CHAIN_BLOCKS: u64 = 128;
const ROWS: u64 = 64;

fn main() {
    for blocks in SIZES {
        let stats = filled(blocks).stats();
        let bytes = stats.bytes as f64 / stats.pairs as f64;
        println!("{} (row, block) pairs take {} bytes: {bytes:.1} each", stats.pairs, stats.bytes);
    }
    divan::main();
}

/// Spreads a number over 64 bits, as hashes are.
const fn spread(number: u64) -> u64 {
    let number = (number ^ (number >> 31)).wrapping_mul(0x7FB5_D329_728E_A185);
    let number = (number ^ (number >> 27)).wrapping_mul(0x81DA_DEF4_BC2D_D44D);
    number ^ (number >> 33)
}

fn hash(chain: u64, depth: u64) -> SequenceHash {
    SequenceHash(spread(chain * CHAIN_BLOCKS + depth + 1))
}

fn chain(number: u64) -> Vec<SequenceHash> {
    (0..CHAIN_BLOCKS).map(|depth| hash(number, depth)).collect()
}

fn stored(number: u64) -> KvEvent {
    KvEvent::Stored { tier: Tier::Device, parent: None, blocks: chain(number) }
}

fn store(index: &mut PrefixIndex, number: u64, event: &KvEvent) {
    let slot = RowSlot(u32::try_from(number % ROWS).unwrap());
    index.apply(slot, event).unwrap();
}

/// An index of `blocks` blocks in chains from 0 on.
fn filled(blocks: u64) -> PrefixIndex {
    let mut index = PrefixIndex::default();
    (0..blocks / CHAIN_BLOCKS).for_each(|number| store(&mut index, number, &stored(number)));
    index
}

/// From empty to full, growth of the tables included.
#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn apply_stored(bencher: Bencher<'_, '_>, blocks: u64) {
    let events: Vec<_> = (0..blocks / CHAIN_BLOCKS).map(|number| (number, stored(number))).collect();
    bencher.counter(ItemsCount::new(blocks)).with_inputs(PrefixIndex::default).bench_local_values(
        |mut index| {
            events.iter().for_each(|(number, event)| store(&mut index, *number, event));
            index
        },
    );
}

/// Blocks leave and others come, in an index that stays as large as it is.
#[divan::bench(args = SIZES, sample_count = 20, sample_size = 1)]
fn apply_turnover(bencher: Bencher<'_, '_>, blocks: u64) {
    const CHAINS: u64 = 1_000;
    let mut index = filled(blocks);
    let mut oldest = 0;
    let mut newest = blocks / CHAIN_BLOCKS;
    let mut turnover = || {
        let stored = (newest..newest + CHAINS).map(|number| (number, stored(number)));
        let removed = (oldest..oldest + CHAINS)
            .map(|number| (number, KvEvent::Removed { tier: Tier::Device, blocks: chain(number) }));
        (oldest, newest) = (oldest + CHAINS, newest + CHAINS);
        removed.chain(stored).collect::<Vec<_>>()
    };
    bencher
        .counter(ItemsCount::new(2 * CHAINS * CHAIN_BLOCKS))
        .with_inputs(&mut turnover)
        .bench_local_values(|events| {
            for (number, event) in &events {
                store(&mut index, *number, event);
            }
        });
}

/// Queries of which the index holds the first blocks, as many as `held` says for the query's number.
fn query(bencher: Bencher<'_, '_>, blocks: u64, held: impl Fn(u64) -> u64) {
    let index = filled(blocks);
    let chains = blocks / CHAIN_BLOCKS;
    let queries: Vec<Vec<_>> = (0..4_096)
        .map(|number| {
            let known = spread(number) % chains;
            let held = held(number);
            (0..CHAIN_BLOCKS)
                .map(|depth| if depth < held { hash(known, depth) } else { hash(chains + number, depth) })
                .collect()
        })
        .collect();
    let mut overlap = Overlap::new();
    let mut turn = queries.iter().cycle();
    bencher.bench_local(|| {
        if let Some(query) = turn.next() {
            index.overlap(query, &mut overlap);
        }
        black_box(overlap.touched().len())
    });
}

#[divan::bench(args = SIZES, sample_size = 256)]
fn query_full_hit(bencher: Bencher<'_, '_>, blocks: u64) {
    query(bencher, blocks, |_| CHAIN_BLOCKS);
}

#[divan::bench(args = SIZES, sample_size = 256)]
fn query_half_hit(bencher: Bencher<'_, '_>, blocks: u64) {
    query(bencher, blocks, |_| CHAIN_BLOCKS / 2);
}

/// No processor can guess where these end.
#[divan::bench(args = SIZES, sample_size = 256)]
fn query_any_hit(bencher: Bencher<'_, '_>, blocks: u64) {
    query(bencher, blocks, |number| spread(!number) % (CHAIN_BLOCKS + 1));
}

#[divan::bench(args = SIZES, sample_size = 256)]
fn query_miss(bencher: Bencher<'_, '_>, blocks: u64) {
    query(bencher, blocks, |_| 0);
}
