//! What each row holds in each tier as two numbers: whether two replicas' indexes are equal is told without sending them.

use super::{PrefixIndex, RowSlot};
use switchtower_ids::Tier;

/// One tier of one row: how many blocks, and a number that depends on which ones alone, not on the order in which they
/// came nor on where they stand in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierDigest {
    /// Blocks of the row in the tier, whatever other tiers they are in.
    pub blocks: u64,
    /// The wrapping sum of their mixed sequence hashes.
    pub digest: u64,
}

impl PrefixIndex {
    /// The digests of every row that holds something, by slot; tiers in the order of [`Tier::ALL`]. Looks at all blocks.
    #[must_use]
    pub fn digests(&self) -> Vec<(RowSlot, [TierDigest; Tier::ALL.len()])> {
        let mut rows = vec![[TierDigest::default(); Tier::ALL.len()]; self.rows.len()];
        for (id, holder) in self.holdings.scan() {
            let mixed = mixed(self.holdings.hash(id).0);
            for &row in self.holdings.rows(&holder) {
                let Some(pair) = self.holdings.pair(id, row) else { continue };
                for tier in pair.tiers.iter() {
                    let of_tier = &mut rows[row as usize][tier.index()];
                    of_tier.blocks += 1;
                    of_tier.digest = of_tier.digest.wrapping_add(mixed);
                }
            }
        }
        let is_empty = |tiers: &[TierDigest; Tier::ALL.len()]| tiers.iter().all(|tier| tier.blocks == 0);
        (0..).map(RowSlot).zip(rows).filter(|(_, tiers)| !is_empty(tiers)).collect()
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014). Not linear: sums of other blocks come out different, even if
/// the blocks' own sum is the same.
const fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::KvEvent;
    use switchtower_ids::SequenceHash;

    fn stored(tier: Tier, blocks: &[u64]) -> KvEvent {
        KvEvent::Stored { tier, parent: None, blocks: blocks.iter().copied().map(SequenceHash).collect() }
    }

    #[test]
    fn equal_rows_have_equal_digests_whatever_came_before_and_others_do_not() {
        let (mut one, mut two) = (PrefixIndex::default(), PrefixIndex::default());
        one.apply(RowSlot(0), &stored(Tier::Device, &[1, 2, 3])).unwrap();
        one.apply(RowSlot(0), &stored(Tier::Device, &[9])).unwrap();
        one.apply(RowSlot(0), &stored(Tier::Host, &[1, 2])).unwrap();
        two.apply(RowSlot(7), &stored(Tier::Device, &[9])).unwrap();
        two.apply(RowSlot(5), &stored(Tier::Disk, &[1, 2, 3, 4])).unwrap();
        two.apply(RowSlot(7), &stored(Tier::Host, &[1, 2])).unwrap();
        two.apply(RowSlot(7), &stored(Tier::Device, &[1, 2, 3])).unwrap();
        let (of_one, of_two) = (one.digests(), two.digests());
        assert_eq!((of_one.len(), of_two.len()), (1, 2));
        assert_eq!(of_one[0].1, of_two[1].1);
        let blocks = of_one[0].1.map(|tier| tier.blocks);
        assert_eq!(blocks, [4, 2, 0]);
        assert_ne!(of_one[0].1[0].digest, of_one[0].1[1].digest);

        let removed = KvEvent::Removed { tier: Tier::Device, blocks: vec![SequenceHash(3)] };
        two.apply(RowSlot(7), &removed).unwrap();
        assert_ne!(two.digests()[1].1[0].digest, of_one[0].1[0].digest);
        let (mut low, mut high) = (PrefixIndex::default(), PrefixIndex::default());
        low.apply(RowSlot(0), &stored(Tier::Device, &[1, 4])).unwrap();
        high.apply(RowSlot(0), &stored(Tier::Device, &[2, 3])).unwrap();
        assert_ne!(low.digests(), high.digests(), "blocks whose numbers add up alike");
        two.drop_row(RowSlot(7));
        assert_eq!(two.digests().len(), 1);
    }
}
