//! Turns a set of held blocks into chains, parents before children: what snapshots, dumps and re-announcements
//! are made of.
//!
//! Called by the publisher (snapshot, newly visible blocks) and by the index (dump). It keeps nothing.

use crate::event::SnapshotRun;
use crate::spread::SpreadMap;
use crate::tiers::Tiers;
use switchtower_ids::SequenceHash;

/// One block as one row holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldBlock {
    pub(crate) hash: SequenceHash,
    pub(crate) parent: Option<SequenceHash>,
    pub(crate) tiers: Tiers,
}

/// Chains that name every block of `blocks` once per tier. A block comes after its parent if that is among
/// `blocks`; otherwise the parent is taken to be known to the receiver already.
pub(crate) fn runs(blocks: &[HeldBlock]) -> Vec<SnapshotRun> {
    let family = Family::of(blocks);
    let mut pending: Vec<usize> = family.roots(blocks);
    let mut runs = Vec::new();
    let mut chain = Vec::new();
    while let Some(start) = pending.pop() {
        chain.clear();
        let mut next = Some(start);
        while let Some(at) = next {
            chain.push(blocks[at].hash);
            next = None;
            let room = chain.len() < SnapshotRun::MAX_BLOCKS;
            for child in family.children(blocks[at].hash) {
                if next.is_none() && room && blocks[child].tiers == blocks[start].tiers {
                    next = Some(child);
                } else {
                    pending.push(child);
                }
            }
        }
        let HeldBlock { parent, tiers, .. } = blocks[start];
        runs.extend(tiers.iter().map(|tier| SnapshotRun { tier, parent, blocks: chain.clone() }));
    }
    runs
}

/// Who follows whom, by position in the given blocks.
struct Family {
    positions: SpreadMap<SequenceHash, usize>,
    first_child: SpreadMap<SequenceHash, usize>,
    next_sibling: Vec<Option<usize>>,
}

impl Family {
    fn of(blocks: &[HeldBlock]) -> Self {
        let positions = blocks.iter().enumerate().map(|(at, block)| (block.hash, at)).collect();
        let mut first_child = SpreadMap::default();
        let mut next_sibling = vec![None; blocks.len()];
        // Backwards, so that siblings come out in the given order.
        for (at, block) in blocks.iter().enumerate().rev() {
            if let Some(parent) = block.parent {
                next_sibling[at] = first_child.insert(parent, at);
            }
        }
        Self { positions, first_child, next_sibling }
    }

    /// Blocks whose parent is not given, last first (they are popped from the end).
    fn roots(&self, blocks: &[HeldBlock]) -> Vec<usize> {
        let is_root =
            |block: &HeldBlock| block.parent.is_none_or(|parent| !self.positions.contains_key(&parent));
        (0..blocks.len()).rev().filter(|at| is_root(&blocks[*at])).collect()
    }

    fn children(&self, parent: SequenceHash) -> impl Iterator<Item = usize> {
        std::iter::successors(self.first_child.get(&parent).copied(), |at| self.next_sibling[*at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchtower_ids::Tier;

    fn held(hash: u64, parent: u64, tiers: Tiers) -> HeldBlock {
        let parent = (parent != 0).then_some(SequenceHash(parent));
        HeldBlock { hash: SequenceHash(hash), parent, tiers }
    }

    fn run(tier: Tier, parent: u64, blocks: &[u64]) -> SnapshotRun {
        let blocks = blocks.iter().copied().map(SequenceHash).collect();
        SnapshotRun { tier, parent: (parent != 0).then_some(SequenceHash(parent)), blocks }
    }

    #[test]
    fn chains_come_parents_first_and_split_where_tiers_change_or_branch() {
        let both = Tiers::DEVICE.with(Tier::Host);
        let device = Tiers::DEVICE;
        let blocks = [held(3, 2, both), held(1, 0, device), held(2, 1, device), held(4, 2, device)];
        assert_eq!(
            runs(&blocks),
            [run(Tier::Device, 0, &[1, 2, 4]), run(Tier::Device, 2, &[3]), run(Tier::Host, 2, &[3]),]
        );
    }

    #[test]
    fn long_chains_are_cut_so_that_snapshots_can_be_chunked() {
        let count = SnapshotRun::MAX_BLOCKS as u64 + 5;
        let blocks: Vec<_> = (1..=count).map(|at| held(at, at - 1, Tiers::DEVICE)).collect();
        let lengths: Vec<_> = runs(&blocks).iter().map(|run| run.blocks.len()).collect();
        assert_eq!(lengths, [SnapshotRun::MAX_BLOCKS, 5]);
    }
}
