//! The whole index as data: what a replica can keep, or hand to another, and start from.

use super::arena::NO_NODE;
use super::holdings::Holdings;
use super::{PrefixIndex, Refused, RowCounts, RowSlot};
use crate::event::SnapshotRun;
use crate::runs::{HeldBlock, runs};
use crate::tiers::Tiers;
use serde::{Deserialize, Serialize};

/// What one row holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowDump {
    /// The row.
    pub slot: RowSlot,
    /// Its blocks, parents before children; a block in several tiers is named once per tier.
    pub runs: Vec<SnapshotRun>,
}

impl PrefixIndex {
    /// Every row that holds something, by slot. Counters are not included.
    #[must_use]
    pub fn dump(&self) -> Vec<RowDump> {
        let mut rows: Vec<Vec<HeldBlock>> = vec![Vec::new(); self.rows.len()];
        for (id, holder) in self.holdings.scan() {
            let parent = self.holdings.parent(id);
            let parent = (parent != NO_NODE).then(|| self.holdings.hash(parent));
            for &row in self.holdings.rows(&holder) {
                let tiers = self.holdings.pair(id, row).map_or(Tiers::NONE, |pair| pair.tiers);
                rows[row as usize].push(HeldBlock { hash: self.holdings.hash(id), parent, tiers });
            }
        }
        let slots = (0..).map(RowSlot).zip(rows).filter(|(_, blocks)| !blocks.is_empty());
        slots.map(|(slot, blocks)| RowDump { slot, runs: runs(&blocks) }).collect()
    }

    /// Replaces everything by `dump`. Rows that are refused end empty; they are returned, the others are restored.
    pub fn restore(&mut self, dump: &[RowDump]) -> Vec<(RowSlot, Refused)> {
        self.holdings = Holdings::default();
        self.rows.fill(RowCounts::default());
        let refused = |row: &RowDump| Some((row.slot, self.replace_runs(row.slot, &row.runs).err()?));
        dump.iter().filter_map(refused).collect()
    }
}
