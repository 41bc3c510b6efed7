//! Applying a removal: blocks leave one tier; those that leave their last tier leave the row.

use super::arena::{NO_NODE, NodeId};
use super::holdings::Pair;
use super::{PrefixIndex, Refused};
use crate::tiers::Tiers;
use switchtower_ids::{SequenceHash, Tier};

/// A checked removal.
struct Removal {
    /// Nodes that stay in another tier.
    staying: Vec<NodeId>,
    /// Nodes that leave the row, sorted, each once.
    leaving: Vec<NodeId>,
    absent: u64,
}

impl PrefixIndex {
    pub(super) fn remove(&mut self, row: u32, tier: Tier, blocks: &[SequenceHash]) -> Result<(), Refused> {
        let removal = self.sort_out(row, tier, blocks);
        self.check_children(row, &removal.leaving)?;
        self.absent_removals += removal.absent;
        for &id in &removal.staying {
            self.leave_tier(id, row, tier);
        }
        for &id in &removal.leaving {
            self.leave_row(id, row, &removal.leaving);
        }
        let counts = self.counts(row);
        counts.blocks -= removal.leaving.len() as u32;
        if tier != Tier::Device {
            counts.off_device -= removal.leaving.len() as u32;
        }
        Ok(())
    }

    fn sort_out(&self, row: u32, tier: Tier, blocks: &[SequenceHash]) -> Removal {
        let mut removal =
            Removal { staying: Vec::new(), leaving: Vec::with_capacity(blocks.len()), absent: 0 };
        self.holdings.warm(blocks);
        for &block in blocks {
            let found = self.holdings.find(block);
            match found.and_then(|id| Some((id, self.holdings.pair(id, row)?.tiers))) {
                Some((id, tiers)) if tiers == Tiers::only(tier) => removal.leaving.push(id),
                Some((id, tiers)) if tiers.contains(tier) => removal.staying.push(id),
                Some(_) | None => removal.absent += 1,
            }
        }
        for nodes in [&mut removal.leaving, &mut removal.staying] {
            nodes.sort_unstable();
            nodes.dedup();
        }
        removal
    }

    /// Every child that the row holds of a leaving block must leave, too.
    fn check_children(&self, row: u32, leaving: &[NodeId]) -> Result<(), Refused> {
        let mut parents: Vec<NodeId> = leaving.iter().map(|id| self.holdings.parent(*id)).collect();
        parents.sort_unstable();
        let mut rest = parents.as_slice();
        for &id in leaving {
            rest = &rest[rest.partition_point(|parent| *parent < id)..];
            let going = rest.partition_point(|parent| *parent == id);
            let children = self.holdings.pair(id, row).map_or(0, |pair| pair.children);
            if going as u64 != u64::from(children) {
                return Err(Refused::HasChildren { block: self.holdings.hash(id) });
            }
        }
        Ok(())
    }

    fn leave_tier(&mut self, id: NodeId, row: u32, tier: Tier) {
        let Some(pair) = self.holdings.pair(id, row) else {
            return;
        };
        self.holdings.set_pair(id, row, Pair { tiers: pair.tiers.without(tier), ..pair });
        if tier == Tier::Device {
            self.counts(row).off_device += 1;
        }
    }

    fn leave_row(&mut self, id: NodeId, row: u32, leaving: &[NodeId]) {
        let parent = self.holdings.parent(id);
        if parent != NO_NODE
            && leaving.binary_search(&parent).is_err()
            && let Some(pair) = self.holdings.pair(parent, row)
        {
            self.holdings.set_pair(parent, row, Pair { children: pair.children - 1, ..pair });
        }
        self.holdings.remove_row(id, row);
    }
}
