//! What rows are assumed to have cached because requests were sent there, in one partition.
//!
//! Two kinds of rows have such a column. One whose worker publishes no KV events has nothing else: the column stands in the
//! partition's index like a log's would (*approximate mode*). One whose worker does publish them has it beside the log,
//! for the moments between a booking and the events it leads to (*prediction*): whichever knows more counts. What fails
//! after it was sent is not taken back; its time ends it.
//!
//! Must not decide where requests go. The registry says which rows there are; reservations say what was sent; a ticking
//! task ends what is too old.

mod cache;

use crate::{index::SharedIndex, options::AssumedOptions};
use cache::AssumedCache;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use switchtower_ids::{Incarnation, Row, SequenceHash, Tier};
use switchtower_kv::{event::KvEvent, index::RowSlot};
use switchtower_scheduling::RowInfo;

/// Where a row's assumptions stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// In the index, in place of a log.
    Approximate,
    /// Beside the index.
    Prediction,
}

struct AssumedRow {
    kind: Kind,
    incarnation: Incarnation,
    slot: RowSlot,
    capacity_blocks: usize,
    cache: AssumedCache,
}

/// The assumptions of one partition. Locks are taken in one order: the rows', then the index's.
pub(crate) struct Assumptions {
    index: SharedIndex,
    options: AssumedOptions,
    rows: Mutex<HashMap<Row, AssumedRow>>,
}

impl Assumptions {
    pub(crate) fn new(index: SharedIndex, options: AssumedOptions) -> Self {
        Self { index, options, rows: Mutex::default() }
    }

    /// Makes the rows with assumptions those of `rows` that need some: a column of another life, slot or kind starts
    /// empty. Called before columns are given to other rows.
    pub(crate) fn follow<'a>(&self, rows: impl Iterator<Item = (&'a RowInfo, bool)>) {
        let mut known = self.rows.lock();
        let mut former = std::mem::take(&mut *known);
        for (info, kv_events) in rows {
            let Some(kind) = self.kind(kv_events) else { continue };
            let row = AssumedRow {
                kind,
                incarnation: info.incarnation,
                slot: info.slot,
                capacity_blocks: self.capacity_blocks(info),
                cache: AssumedCache::default(),
            };
            let row = match former.remove(&info.row) {
                Some(same) if same.is(&row) => {
                    AssumedRow { cache: same.cache, capacity_blocks: row.capacity_blocks, ..row }
                }
                other => {
                    other.iter().for_each(|other| self.drop_column(other));
                    self.drop_column(&row);
                    row
                }
            };
            known.insert(info.row, row);
        }
        former.values().for_each(|gone| self.drop_column(gone));
    }

    /// A request with these blocks was sent to `row`.
    pub(crate) fn sent(&self, now_ms: u64, row: Row, incarnation: Incarnation, prompt: &Arc<[SequenceHash]>) {
        let mut rows = self.rows.lock();
        let Some(assumed) = rows.get_mut(&row).filter(|assumed| assumed.incarnation == incarnation) else {
            return;
        };
        let length = prompt.len().min(assumed.capacity_blocks);
        if length == 0 {
            return;
        }
        let blocks = prompt[..length].to_vec();
        let stored = KvEvent::Stored { tier: Tier::Device, parent: None, blocks };
        // Refused where hashes collide or the index is full: then nothing is assumed.
        if self.apply(assumed, &stored) {
            assumed.cache.touch(now_ms, prompt, length);
            let surplus = assumed.cache.shrink(assumed.capacity_blocks);
            self.forget(assumed, surplus);
        }
    }

    /// Ends what is too old at `now_ms`.
    pub(crate) fn expire(&self, now_ms: u64) {
        for assumed in self.rows.lock().values_mut() {
            let ttl = match assumed.kind {
                Kind::Approximate => self.options.ttl,
                Kind::Prediction => self.options.predicted_ttl,
            };
            let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
            // What is exactly as old as its time has had its time.
            let old = assumed.cache.expire(now_ms.saturating_add(1).saturating_sub(ttl_ms));
            self.forget(assumed, old);
        }
    }

    /// How many blocks a row is assumed to hold.
    #[cfg(test)]
    pub(crate) fn blocks(&self, row: Row) -> usize {
        self.rows.lock().get(&row).map_or(0, |assumed| assumed.cache.len())
    }

    fn kind(&self, kv_events: bool) -> Option<Kind> {
        match kv_events {
            false => Some(Kind::Approximate),
            true => (!self.options.predicted_ttl.is_zero()).then_some(Kind::Prediction),
        }
    }

    fn capacity_blocks(&self, info: &RowInfo) -> usize {
        let blocks = info.total_blocks.filter(|blocks| *blocks > 0);
        usize::try_from(blocks.unwrap_or(self.options.default_blocks)).unwrap_or(usize::MAX)
    }

    fn forget(&self, assumed: &AssumedRow, blocks: Vec<SequenceHash>) {
        if !blocks.is_empty() {
            self.apply(assumed, &KvEvent::Removed { tier: Tier::Device, blocks });
        }
    }

    fn apply(&self, assumed: &AssumedRow, event: &KvEvent) -> bool {
        let applied = match assumed.kind {
            Kind::Approximate => self.index.apply(assumed.slot, std::iter::once(event)),
            Kind::Prediction => self.index.predict(assumed.slot, event),
        };
        applied.is_ok()
    }

    fn drop_column(&self, assumed: &AssumedRow) {
        match assumed.kind {
            Kind::Approximate => self.index.drop_row(assumed.slot),
            Kind::Prediction => self.index.drop_prediction(assumed.slot),
        }
    }
}

impl AssumedRow {
    /// Whether both are the same row's in the same life and place.
    fn is(&self, other: &Self) -> bool {
        (self.kind, self.incarnation, self.slot) == (other.kind, other.incarnation, other.slot)
    }
}

#[cfg(test)]
mod tests;
