//! Applying a stored chain: check it against what is known, then change everything at once.
//!
//! A chain falls into three zones, in this order, any of them empty: blocks the row holds already (they may
//! reach one more tier), blocks only other rows hold (the row joins them), and blocks nobody holds (new nodes).

use super::arena::{NO_NODE, NodeId};
use super::holdings::Pair;
use super::{PrefixIndex, Refused};
use crate::tiers::Tiers;
use switchtower_ids::{SequenceHash, Tier};

/// Where the zones of a checked chain end, and what it continues. `PrefixIndex::nodes` has the known blocks' nodes.
struct Zones {
    parent: NodeId,
    held: usize,
    known: usize,
}

impl PrefixIndex {
    pub(super) fn store(
        &mut self,
        row: u32,
        tier: Tier,
        parent: Option<SequenceHash>,
        blocks: &[SequenceHash],
    ) -> Result<(), Refused> {
        let zones = self.check_chain(row, parent, blocks)?;
        self.create_new(row, tier, &zones, blocks)?;
        self.join_known(row, tier, &zones, blocks.len());
        self.reach_tier(row, tier, zones.held);
        let added = blocks.len() - zones.held;
        if added > 0 {
            let before = if zones.held == 0 { zones.parent } else { self.nodes[zones.held - 1] };
            self.add_child(before, row);
        }
        let counts = self.counts(row);
        counts.blocks += added as u32;
        counts.off_device += if tier == Tier::Device { 0 } else { added as u32 };
        Ok(())
    }

    fn check_chain(
        &mut self,
        row: u32,
        parent: Option<SequenceHash>,
        blocks: &[SequenceHash],
    ) -> Result<Zones, Refused> {
        let Self { holdings, nodes, .. } = self;
        nodes.clear();
        let parent = match parent {
            None => NO_NODE,
            Some(parent) => holdings
                .find(parent)
                .filter(|id| holdings.holds(holdings.holder(*id), row))
                .ok_or(Refused::UnknownParent { parent })?,
        };
        holdings.warm(blocks);
        let mut previous = parent;
        let mut held = 0;
        for (at, &block) in blocks.iter().enumerate() {
            let Some(id) = holdings.find(block) else { break };
            if holdings.parent(id) != previous {
                return Err(Refused::ParentConflict { block });
            }
            if held == at && holdings.holds(holdings.holder(id), row) {
                held += 1;
            }
            nodes.push(id);
            previous = id;
        }
        let limit = self.limits.blocks;
        if blocks.len() - nodes.len() > limit.saturating_sub(holdings.blocks()) {
            return Err(Refused::Full { limit });
        }
        Ok(Zones { parent, held, known: nodes.len() })
    }

    /// Creates the chain's new nodes. Behind a block that nobody holds, every block has to be new, too: if one is
    /// not, the created ones are taken back.
    fn create_new(
        &mut self,
        row: u32,
        tier: Tier,
        zones: &Zones,
        blocks: &[SequenceHash],
    ) -> Result<(), Refused> {
        let mut previous = self.nodes.last().copied().unwrap_or(zones.parent);
        for (at, &block) in blocks.iter().enumerate().skip(zones.known) {
            match self.holdings.create(block, previous, row, pair_at(at, blocks.len(), tier)) {
                Ok(id) => {
                    self.nodes.push(id);
                    previous = id;
                }
                Err(known) => {
                    let repeated = self.nodes[zones.known..].contains(&known);
                    for id in self.nodes.drain(zones.known..) {
                        self.holdings.remove_row(id, row);
                    }
                    return Err(if repeated {
                        Refused::Repeated { block }
                    } else {
                        Refused::ParentConflict { block }
                    });
                }
            }
        }
        Ok(())
    }

    fn join_known(&mut self, row: u32, tier: Tier, zones: &Zones, length: usize) {
        for at in zones.held..zones.known {
            self.holdings.add_row(self.nodes[at], row, pair_at(at, length, tier));
        }
    }

    /// Adds `tier` to the first `held` blocks of the chain.
    fn reach_tier(&mut self, row: u32, tier: Tier, held: usize) {
        for at in 0..held {
            let id = self.nodes[at];
            let Some(pair) = self.holdings.pair(id, row) else {
                continue;
            };
            if pair.tiers.contains(tier) {
                continue;
            }
            self.holdings.set_pair(id, row, Pair { tiers: pair.tiers.with(tier), ..pair });
            if tier == Tier::Device {
                self.counts(row).off_device -= 1;
            }
        }
    }

    fn add_child(&mut self, id: NodeId, row: u32) {
        if id == NO_NODE {
            return;
        }
        if let Some(pair) = self.holdings.pair(id, row) {
            self.holdings.set_pair(id, row, Pair { children: pair.children + 1, ..pair });
        }
    }
}

/// The pair of a block that the row did not hold: only the last of a chain has no child.
fn pair_at(at: usize, length: usize, tier: Tier) -> Pair {
    Pair { tiers: Tiers::only(tier), children: u32::from(at + 1 < length) }
}
