//! Which prompt blocks are active on which rows, from hashes kept at sampled depths (`book rule 5`).
//!
//! Two requests with a common prefix count it once. Keeping every hash would be exact and cost a map entry per
//! block; kept depths depend on the depth alone, so common prefixes have common kept hashes and each stands for the
//! blocks since the kept depth before it.

use hashbrown::HashMap;
use switchtower_ids::SequenceHash;

/// Up to this depth every [`NEAR_STRIDE`]th block is kept.
const NEAR_DEPTH: usize = 4_096;
const NEAR_STRIDE: usize = 16;
const FAR_STRIDE: usize = 256;

/// A kept hash and the number of blocks it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeptBlock {
    /// Hash of the prefix.
    pub hash: SequenceHash,
    /// Blocks since the kept depth before it.
    pub weight: u32,
}

/// The kept blocks of a prompt: every 16th up to depth 4,096, every 256th beyond, and the last. Weights add up to the
/// number of blocks.
#[must_use]
pub fn kept_blocks(blocks: &[SequenceHash]) -> Vec<KeptBlock> {
    let mut kept = Vec::new();
    keep_blocks(blocks, &mut kept);
    kept
}

/// [`kept_blocks`] into a list that is used again.
pub(crate) fn keep_blocks(blocks: &[SequenceHash], kept: &mut Vec<KeptBlock>) {
    kept.clear();
    let (near, far) = blocks.split_at(blocks.len().min(NEAR_DEPTH));
    for stride in near.chunks(NEAR_STRIDE).chain(far.chunks(FAR_STRIDE)) {
        if let Some(last) = stride.last() {
            // A stride is at most 256 long.
            kept.push(KeptBlock { hash: *last, weight: stride.len() as u32 });
        }
    }
}

/// A row's column and how many of its reservations have the block.
type Holder = (usize, u32);

/// Most blocks are active on one row: no allocation for those.
#[derive(Debug)]
enum Holders {
    One(Holder),
    Many(Vec<Holder>),
}

impl Holders {
    fn as_slice(&self) -> &[Holder] {
        match self {
            Self::One(holder) => std::slice::from_ref(holder),
            Self::Many(holders) => holders,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [Holder] {
        match self {
            Self::One(holder) => std::slice::from_mut(holder),
            Self::Many(holders) => holders,
        }
    }

    fn push(&mut self, holder: Holder) {
        match self {
            Self::One(first) => *self = Self::Many(vec![*first, holder]),
            Self::Many(holders) => holders.push(holder),
        }
    }

    /// Whether nobody is left.
    fn remove(&mut self, column: usize) -> bool {
        match self {
            Self::One(holder) => holder.0 == column,
            Self::Many(holders) => {
                holders.retain(|holder| holder.0 != column);
                holders.is_empty()
            }
        }
    }
}

/// Reference counts per (kept block, column). The weight is a part of the key: equal hashes have equal depths and so equal
/// weights, but for collisions, which a caller can bring about; what is taken back must be what was counted even then.
#[derive(Debug, Default)]
pub(super) struct ActiveBlocks {
    holders: HashMap<KeptBlock, Holders>,
}

impl ActiveBlocks {
    /// Counts a reservation's blocks in `column`; returns how many blocks were not active there before.
    pub(super) fn add(&mut self, column: usize, kept: &[KeptBlock]) -> u64 {
        kept.iter().filter(|block| self.add_one(column, **block)).map(|block| u64::from(block.weight)).sum()
    }

    /// Takes a reservation's blocks back; returns how many blocks are not active there any more.
    pub(super) fn remove(&mut self, column: usize, kept: &[KeptBlock]) -> u64 {
        kept.iter()
            .filter(|block| self.remove_one(column, **block))
            .map(|block| u64::from(block.weight))
            .sum()
    }

    fn add_one(&mut self, column: usize, block: KeptBlock) -> bool {
        let Some(holders) = self.holders.get_mut(&block) else {
            self.holders.insert(block, Holders::One((column, 1)));
            return true;
        };
        match holders.as_mut_slice().iter_mut().find(|holder| holder.0 == column) {
            Some(holder) => {
                holder.1 += 1;
                false
            }
            None => {
                holders.push((column, 1));
                true
            }
        }
    }

    fn remove_one(&mut self, column: usize, block: KeptBlock) -> bool {
        let Some(holders) = self.holders.get_mut(&block) else {
            return false;
        };
        let Some(holder) = holders.as_mut_slice().iter_mut().find(|holder| holder.0 == column) else {
            return false;
        };
        holder.1 -= 1;
        if holder.1 > 0 {
            return false;
        }
        if holders.remove(column) {
            self.holders.remove(&block);
        }
        true
    }

    /// Counts for every column the blocks of `kept` that are active there. Whoever has a block of a prompt has all those
    /// before it, so the first that nobody has is the end.
    pub(super) fn shared(&self, kept: &[KeptBlock], shared: &mut SharedBlocks) {
        for block in kept {
            let Some(holders) = self.holders.get(block) else { return };
            for (column, _) in holders.as_slice() {
                shared.add(*column, u64::from(block.weight));
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.holders.len()
    }
}

/// How many blocks of one prompt are active in each of the book's columns: in most of them none.
#[derive(Debug, Default)]
pub struct SharedBlocks {
    by_column: Vec<u64>,
    /// The columns that are not 0.
    columns: Vec<usize>,
}

impl SharedBlocks {
    /// Back to none, with a place for each of `columns`.
    pub(super) fn reset(&mut self, columns: usize) {
        for column in self.columns.drain(..) {
            self.by_column[column] = 0;
        }
        self.by_column.resize(columns, 0);
    }

    fn add(&mut self, column: usize, blocks: u64) {
        let sum = &mut self.by_column[column];
        if *sum == 0 {
            self.columns.push(column);
        }
        *sum += blocks;
    }

    /// The blocks that are active in one column.
    #[must_use]
    pub fn at(&self, column: usize) -> u64 {
        self.by_column.get(column).copied().unwrap_or(0)
    }

    /// The columns with any blocks, in no particular order, and how many.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        self.columns.iter().map(|column| (*column, self.by_column[*column]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(count: u64) -> Vec<SequenceHash> {
        (1..=count).map(SequenceHash).collect()
    }

    #[test]
    fn book_rule_5_weights_add_up_and_depths_depend_on_the_depth_alone() {
        for length in [0, 1, 15, 16, 17, 4_095, 4_096, 4_097, 5_000, 70_000] {
            let kept = kept_blocks(&hashes(length));
            assert_eq!(kept.iter().map(|block| u64::from(block.weight)).sum::<u64>(), length);
            let longer = kept_blocks(&hashes(length + 1_000));
            let common = kept.len().saturating_sub(1);
            assert_eq!(kept[..common], longer[..common], "a longer prompt keeps the same depths");
        }
        assert_eq!(kept_blocks(&hashes(4_096)).len(), 256);
    }

    #[test]
    fn a_shared_prefix_counts_once_per_column() {
        let mut active = ActiveBlocks::default();
        let (short, long) = (kept_blocks(&hashes(32)), kept_blocks(&hashes(48)));
        assert_eq!(active.add(0, &short), 32);
        assert_eq!(active.add(0, &long), 16);
        assert_eq!(active.add(1, &short), 32);
        let mut shared = SharedBlocks::default();
        for _ in 0..2 {
            shared.reset(2);
            active.shared(&long, &mut shared);
            assert_eq!(shared.iter().collect::<Vec<_>>(), [(0, 48), (1, 32)]);
        }
        shared.reset(2);
        active.shared(&kept_blocks(&hashes(15)), &mut shared);
        assert_eq!(shared.iter().count(), 0, "other depths, other blocks");
        assert_eq!(active.remove(0, &short), 0);
        assert_eq!(active.remove(0, &long), 48);
        assert_eq!(active.remove(1, &short), 32);
        assert_eq!(active.len(), 0);
    }
    /// A caller who finds two prompts whose kept hashes collide at different depths must not get the sums to drift.
    #[test]
    fn b47_colliding_hashes_of_other_weights_are_taken_back_as_they_were_counted() {
        let block = |weight| [KeptBlock { hash: SequenceHash(1), weight }];
        let mut active = ActiveBlocks::default();
        assert_eq!((active.add(0, &block(4)), active.add(0, &block(16))), (4, 16));
        assert_eq!((active.remove(0, &block(4)), active.remove(0, &block(16))), (4, 16));
        assert_eq!(active.len(), 0);
    }
}
