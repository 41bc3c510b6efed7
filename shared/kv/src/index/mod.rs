//! The prefix index: how much of a prompt each row has cached, and in which tier.
//!
//! Rows are named by dense numbers that the caller assigns ([`RowSlot`]); the index knows no workers. The ingestor
//! of the selection service (and `replay`) feeds it with the events a [`crate::cursor::Cursor`] let through; the
//! scheduler asks [`PrefixIndex::overlap`]. It does no I/O and has no lock: the caller decides who may write when.
//!
//! **What it relies on.** Every row is prefix-closed over the union of its tiers. The index checks this at every
//! change, exactly: it keeps each block's parent, and for each (row, block) how many children the row holds. So a
//! chain after an unknown parent, a block under two parents (that is, at two depths), and the removal of a block
//! whose children stay are refused whole and counted ([`Refused`]). An event is atomic: the order of blocks inside
//! a removal does not matter. Removing what is not held and storing what is held change nothing, so repeats of
//! old events are harmless. A query may then search by depth: the rows that hold a prompt's first `d` blocks only
//! get fewer as `d` grows.
//!
//! **What it costs.** One node of 20 bytes and 10–12.5 bytes of table per distinct block; rows that share blocks
//! share sets of rows. [`PrefixIndex::drop_row`], [`PrefixIndex::replace`] and `Cleared` scan all nodes up to the
//! row's last one: they are rare, and a list of blocks per row would cost more than it saves.

mod arena;
mod digest;
mod dump;
mod holdings;
mod query;
mod refused;
mod remove;
mod row_sets;
mod store;
mod table;

pub use digest::TierDigest;
pub use dump::RowDump;
pub use query::{Overlap, TierBlocks};
pub use refused::{RefusalCounts, RefusalReason, Refused};

use crate::event::{KvEvent, Snapshot, SnapshotRun};
use arena::NodeId;
use holdings::{Holder, Holdings};
use serde::{Deserialize, Serialize};

/// A row of the index: a small number that the caller gives to a (worker, rank) and takes back after
/// [`PrefixIndex::drop_row`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RowSlot(pub u32);

/// How much one index may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLimits {
    /// Slots are below this.
    pub rows: u32,
    /// Distinct blocks, over all rows; at most 2²⁸ count.
    pub blocks: usize,
}

impl Default for IndexLimits {
    fn default() -> Self {
        Self { rows: 1 << 16, blocks: Holdings::MAX_BLOCKS }
    }
}

/// What the index holds and what it has refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Rows that hold at least one block.
    pub rows: usize,
    /// Distinct blocks.
    pub blocks: usize,
    /// (row, block) pairs, each counted once however many tiers it is in.
    pub pairs: u64,
    /// Memory taken, in bytes, as allocated.
    pub bytes: usize,
    /// Blocks whose removal changed nothing because the row did not hold them in that tier.
    pub absent_removals: u64,
    /// What was refused, by reason.
    pub refused: RefusalCounts,
}

/// Per row: what a query must know before it looks at blocks.
#[derive(Clone, Copy, Debug, Default)]
struct RowCounts {
    blocks: u32,
    /// Blocks that are on host or disk only. A row without any is answered from its depth alone.
    off_device: u32,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct PrefixIndex {
    limits: IndexLimits,
    holdings: Holdings,
    rows: Vec<RowCounts>,
    /// Nodes of the event being applied, kept to save the allocation.
    nodes: Vec<NodeId>,
    absent_removals: u64,
    refused: RefusalCounts,
}

impl PrefixIndex {
    /// An empty index.
    #[must_use]
    pub fn new(limits: IndexLimits) -> Self {
        let blocks = limits.blocks.min(Holdings::MAX_BLOCKS);
        let rows = limits.rows.min(1 << 30);
        Self { limits: IndexLimits { rows, blocks }, ..Self::default() }
    }

    /// Applies one event of `slot`'s log, or refuses it whole and counts that.
    pub fn apply(&mut self, slot: RowSlot, event: &KvEvent) -> Result<(), Refused> {
        let applied = self.admit(slot).and_then(|row| match event {
            KvEvent::Stored { tier, parent, blocks } => self.store(row, *tier, *parent, blocks),
            KvEvent::Removed { tier, blocks } => self.remove(row, *tier, blocks),
            KvEvent::Cleared => {
                self.clear(row);
                Ok(())
            }
            KvEvent::Unknown => Err(Refused::UnknownKind),
        });
        applied.inspect_err(|refused| self.refused.count(refused.reason(), event.block_count()))
    }

    /// Puts `snapshot` in place of whatever `slot` held. If it contradicts itself or other rows it is refused, and
    /// the row is left *empty*: its former state is known to be wrong, and an empty row never promises too much.
    pub fn replace(&mut self, slot: RowSlot, snapshot: &Snapshot) -> Result<(), Refused> {
        self.replace_runs(slot, &snapshot.blocks)
    }

    /// Forgets everything that `slot` holds; a slot never seen holds nothing.
    pub fn drop_row(&mut self, slot: RowSlot) {
        self.clear(slot.0);
    }

    /// Counts and sizes; cheap.
    #[must_use]
    pub fn stats(&self) -> IndexStats {
        IndexStats {
            rows: self.rows.iter().filter(|row| row.blocks > 0).count(),
            blocks: self.holdings.blocks(),
            pairs: self.rows.iter().map(|row| u64::from(row.blocks)).sum(),
            bytes: self.holdings.bytes() + self.rows.capacity() * size_of::<RowCounts>(),
            absent_removals: self.absent_removals,
            refused: self.refused,
        }
    }

    /// How many blocks `slot` holds, in any tier.
    #[must_use]
    pub fn row_blocks(&self, slot: RowSlot) -> u32 {
        self.rows.get(slot.0 as usize).map_or(0, |row| row.blocks)
    }

    /// The row of `slot`, with counters.
    fn admit(&mut self, slot: RowSlot) -> Result<u32, Refused> {
        let limit = self.limits.rows;
        if slot.0 >= limit {
            return Err(Refused::SlotOutOfRange { slot: slot.0, limit });
        }
        if self.rows.len() <= slot.0 as usize {
            self.rows.resize(slot.0 as usize + 1, RowCounts::default());
        }
        Ok(slot.0)
    }

    fn counts(&mut self, row: u32) -> &mut RowCounts {
        &mut self.rows[row as usize]
    }

    fn replace_runs(&mut self, slot: RowSlot, runs: &[SnapshotRun]) -> Result<(), Refused> {
        self.clear(slot.0);
        for SnapshotRun { tier, parent, blocks } in runs {
            let stored = self.admit(slot).and_then(|row| self.store(row, *tier, *parent, blocks));
            if let Err(refused) = stored {
                self.refused.count(refused.reason(), blocks.len());
                self.clear(slot.0);
                return Err(refused);
            }
        }
        Ok(())
    }

    fn clear(&mut self, row: u32) {
        let Some(counts) = self.rows.get_mut(row as usize) else {
            return;
        };
        let mut left = std::mem::take(counts).blocks;
        // Neighbours often have the same holders: the answer for the last set is kept.
        let mut last: Option<(Holder, bool)> = None;
        for id in 0..self.holdings.span() {
            if left == 0 {
                break;
            }
            let Some(holder) = self.holdings.occupied(id) else {
                continue;
            };
            let holds = match last {
                Some((same, holds)) if same == holder => holds,
                _ => self.holdings.holds(holder, row),
            };
            last = Some((holder, holds));
            if holds {
                self.holdings.remove_row(id, row);
                left -= 1;
            }
        }
        self.holdings.shrink();
    }
}
