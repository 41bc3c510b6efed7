//! Answering a query: for every row, how many of a prompt's first blocks it holds, and in which tiers.
//!
//! The rows that hold the first `d` blocks only get fewer as `d` grows, so two searches by depth do: for the
//! deepest block that any row holds, and from there upwards for each depth at which the set of rows changes. They are plain
//! binary searches with branches: while a probe waits for memory, the processor guesses on and has begun with the next
//! ones, which reads less than probing several depths at a time and is faster even where half of the guesses are wrong.
//! The first search asks only for tags in the table, and one look at a node tells whether a tag has lied.
//! Rows with blocks off the device are then counted block by block, along parent links.

use super::arena::NodeId;
use super::{PrefixIndex, RowSlot};
use switchtower_ids::{SequenceHash, Tier};

/// Blocks of one row's cached prefix, each counted once, at its fastest tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierBlocks {
    /// On the device.
    pub device: u32,
    /// On the host, and not on the device.
    pub host: u32,
    /// On disk only.
    pub disk: u32,
}

impl TierBlocks {
    /// The length of the cached prefix, in blocks.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.device + self.host + self.disk
    }
}

/// One query's answer, as columns over the slots. Made once and used again: filling it allocates nothing as long
/// as no new slots appear.
#[derive(Clone, Debug, Default)]
pub struct Overlap {
    device: Vec<u32>,
    host: Vec<u32>,
    disk: Vec<u32>,
    touched: Vec<RowSlot>,
    /// Space for the nodes of the query, needed only for rows with blocks off the device.
    path: Vec<NodeId>,
    /// Depths (from 0) at which some row holds the block off the device only.
    mixed: Vec<u32>,
}

impl Overlap {
    /// An empty answer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Blocks on the device, by slot; as long as the index has seen slots.
    #[must_use]
    pub fn device(&self) -> &[u32] {
        &self.device
    }

    /// Blocks on the host and not on the device, by slot.
    #[must_use]
    pub fn host(&self) -> &[u32] {
        &self.host
    }

    /// Blocks on disk only, by slot.
    #[must_use]
    pub fn disk(&self) -> &[u32] {
        &self.disk
    }

    /// The slots with at least one block, in no particular order; all others are zero in every column.
    #[must_use]
    pub fn touched(&self) -> &[RowSlot] {
        &self.touched
    }

    /// One row's share; zero for slots the index has never seen.
    #[must_use]
    pub fn blocks(&self, slot: RowSlot) -> TierBlocks {
        let at = |column: &[u32]| column.get(slot.0 as usize).copied().unwrap_or(0);
        TierBlocks { device: at(&self.device), host: at(&self.host), disk: at(&self.disk) }
    }

    /// Counts one row's cached prefix as `total` blocks long, if it is shorter; what is added counts as on the device.
    pub fn raise(&mut self, slot: RowSlot, total: u32) {
        let at = slot.0 as usize;
        for column in [&mut self.device, &mut self.host, &mut self.disk] {
            if column.len() <= at {
                column.resize(at + 1, 0);
            }
        }
        let known = self.blocks(slot).total();
        if known == 0 && total > 0 {
            self.touched.push(slot);
        }
        self.device[at] += total.saturating_sub(known);
    }

    /// Back to zero everywhere, with a column entry for each of `slots`.
    fn reset(&mut self, slots: usize) {
        for slot in self.touched.drain(..) {
            for column in [&mut self.device, &mut self.host, &mut self.disk] {
                column[slot.0 as usize] = 0;
            }
        }
        if self.device.len() != slots {
            for column in [&mut self.device, &mut self.host, &mut self.disk] {
                column.resize(slots, 0);
            }
        }
    }

    /// Notes that `rows` hold the first `depth` blocks; a row noted before holds more.
    fn note(&mut self, rows: &[u32], depth: usize) {
        for &row in rows {
            let device = &mut self.device[row as usize];
            if *device == 0 {
                *device = depth as u32;
                self.touched.push(RowSlot(row));
            }
        }
    }
}

impl PrefixIndex {
    /// For every row, how much of the longest prefix of `query` it holds in the union of its tiers; `out` is
    /// overwritten. `query` is the sequence hashes of one prompt, from its first block on; any other list
    /// gives counts that mean nothing, at most its length.
    pub fn overlap(&self, query: &[SequenceHash], out: &mut Overlap) {
        out.reset(self.rows.len());
        let Some(first) = query.first().and_then(|block| self.holdings.find_root(*block)) else {
            return;
        };
        let (mut depth, end) = self.deepest_held(query, first);
        let first = self.holdings.holder(first);
        let mut node = end;
        loop {
            let holder = self.holdings.holder(node);
            out.note(self.holdings.rows(&holder), depth);
            if holder == first || depth <= 1 {
                break;
            }
            let held_by_others =
                |block| self.holdings.find(block).is_some_and(|id| self.holdings.holder(id) != holder);
            depth = deepest(1, depth, |depth| held_by_others(query[depth - 1]));
            match self.holdings.find(query[depth - 1]) {
                Some(above) => node = above,
                None => break,
            }
        }
        self.split_tiers(end, out);
    }

    /// The depth and the node of the last of the query's blocks that some row holds, given the node of its first one.
    fn deepest_held(&self, query: &[SequenceHash], first: NodeId) -> (usize, NodeId) {
        let node_at = |depth: usize| self.holdings.find(query[depth - 1]);
        if let Some(last) = node_at(query.len()) {
            return (query.len(), last);
        }
        // A block that is held may be held: where this search ends and the block really is held, it is the last one.
        let likely = deepest(1, query.len(), |depth| self.holdings.may_hold(query[depth - 1]));
        if let Some(last) = node_at(likely) {
            return (likely, last);
        }
        let sure = deepest(1, query.len(), |depth| node_at(depth).is_some());
        node_at(sure).map_or((1, first), |last| (sure, last))
    }

    /// Moves blocks that are not on the device from the device's column to the other ones.
    fn split_tiers(&self, end: NodeId, out: &mut Overlap) {
        let has_others = |slot: &RowSlot| self.rows[slot.0 as usize].off_device > 0;
        if !out.touched.iter().any(has_others) {
            return;
        }
        let Overlap { device, host, disk, touched, path, mixed } = out;
        self.holdings.path(end, path);
        mixed.clear();
        mixed
            .extend((0..).zip(&*path).filter(|(_, id)| self.holdings.is_mixed(**id)).map(|(depth, _)| depth));
        for slot in touched.iter().filter(|slot| has_others(slot)) {
            let row = slot.0 as usize;
            let prefix = device[row];
            for depth in mixed.iter().take_while(|depth| **depth < prefix) {
                let pair = self.holdings.pair(path[*depth as usize], slot.0);
                match pair.and_then(|pair| pair.tiers.best()) {
                    Some(Tier::Host) => host[row] += 1,
                    Some(Tier::Disk) => disk[row] += 1,
                    Some(Tier::Device) | None => continue,
                }
                device[row] -= 1;
            }
        }
    }
}

/// The largest depth in `low..high` that `passes`, given that `low` does, `high` does not, and no depth does behind
/// one that does not.
fn deepest(mut low: usize, mut high: usize, passes: impl Fn(usize) -> bool) -> usize {
    while high.saturating_sub(low) > 1 {
        let middle = low + (high - low) / 2;
        if passes(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::KvEvent, index::IndexLimits, spread::unspread};

    /// Equal numbers have equal tags in the table.
    fn block(number: u64, twin: u64) -> SequenceHash {
        SequenceHash(unspread((number << 32) | twin))
    }

    #[test]
    fn blocks_that_look_alike_in_the_table_do_not_deceive_the_search() {
        let mut index = PrefixIndex::new(IndexLimits::default());
        let mut store = |row, blocks| {
            index.apply(RowSlot(row), &KvEvent::Stored { tier: Tier::Device, parent: None, blocks }).unwrap();
        };
        store(0, (1..=5).map(|number| block(number, 0)).collect());
        store(1, (6..=20).map(|number| block(number, 1)).collect());
        let mut overlap = Overlap::new();
        for absent in 6..=20 {
            let query: Vec<_> = (1..=absent).map(|number| block(number, 0)).collect();
            index.overlap(&query, &mut overlap);
            assert_eq!(overlap.device(), [5, 0], "{absent} blocks");
        }
    }

    #[test]
    fn the_search_finds_every_boundary() {
        for high in 2..150 {
            for boundary in 1..high {
                assert_eq!(deepest(1, high, |depth| depth <= boundary), boundary, "below {high}");
            }
        }
    }

    #[test]
    fn the_search_ends_whatever_the_answers_are() {
        assert_eq!(deepest(5, 5, |_| true), 5);
        assert!((1..100).contains(&deepest(1, 100, |depth| depth % 3 == 0)));
    }
}
