//! From KV events to the index: one cursor per row, and what has to be repaired.
//!
//! Pure bookkeeping around the shared indexes: whoever drives it asks workers for what [`Ingest::due`] names and brings
//! the answers. Every row begins with a request for its whole log, so events of a worker that is not known yet need not
//! be kept: what they said is asked for once the worker is known.

use super::repair::{Repair, RepairAnswer, RepairState};
use crate::{index::SharedIndex, metrics::IngestMetrics};
use std::collections::{HashMap, VecDeque};
use switchtower_ids::{Incarnation, Row, WorkerId};
use switchtower_kv::{
    cursor::{Cursor, Offer, SnapshotOffer},
    event::{EventBatch, SequencedEvent, Snapshot},
    index::{RefusalReason, Refused, RowSlot},
};

/// Repairs that one worker may be asked for at once: dumps of large caches take it time that it needs for tokens (B139).
const REPAIRS_PER_WORKER: usize = 2;

/// A row whose log is followed.
struct Followed {
    slot: RowSlot,
    index: SharedIndex,
    cursor: Cursor,
    repair: RepairState,
    /// Whether the row is among those that are to be asked about.
    is_listed: bool,
}

/// Where a row's log stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// The last event that is in the index.
    pub(super) applied: u64,
    /// Whether a part of the log, or the state, is being asked for.
    pub(super) is_repairing: bool,
    /// Whether the log has not been answered to its end yet, and it is too early to give up on that.
    pub(super) awaits_whole_log: bool,
}

/// All rows' cursors.
pub(super) struct Ingest {
    rows: HashMap<Row, Followed>,
    /// Rows with repairs that may be due, first come first served, so that a message costs no look at all rows.
    listed: VecDeque<Row>,
    /// Whether `listed` may have become startable since it was last looked at.
    has_news: bool,
    /// Repairs under way by worker, whether their rows are still followed or not.
    under_way: HashMap<WorkerId, usize>,
    repairs: u64,
    metrics: IngestMetrics,
    ready: Vec<SequencedEvent>,
}

impl Ingest {
    pub(super) fn new(metrics: IngestMetrics) -> Self {
        Self {
            rows: HashMap::new(),
            listed: VecDeque::new(),
            has_news: false,
            under_way: HashMap::new(),
            repairs: 0,
            metrics,
            ready: Vec::new(),
        }
    }

    /// Follows `row` in this life. Another life, slot or index than before starts over, with an empty column.
    pub(super) fn follow(&mut self, row: Row, incarnation: Incarnation, slot: RowSlot, index: &SharedIndex) {
        let followed = self.rows.entry(row).or_insert_with(|| Followed {
            slot,
            index: index.clone(),
            cursor: Cursor::new(),
            repair: RepairState::default(),
            is_listed: false,
        });
        let moved = followed.slot != slot || !followed.index.is(index);
        if moved {
            followed.cursor.end();
            (followed.slot, followed.index) = (slot, index.clone());
        }
        if followed.cursor.begin(incarnation) {
            index.drop_row(slot);
            followed.repair = RepairState::whole_log();
            self.list(row);
        }
    }

    /// Lists `row` if a repair of it is due.
    fn list(&mut self, row: Row) {
        if let Some(followed) = self.rows.get_mut(&row)
            && followed.repair.is_due()
            && !std::mem::replace(&mut followed.is_listed, true)
        {
            self.listed.push_back(row);
            self.has_news = true;
        }
    }

    /// Follows no other rows than those that `keep` names.
    pub(super) fn retain(&mut self, keep: impl Fn(Row) -> bool) {
        self.rows.retain(|row, _| keep(*row));
        self.listed.retain(|row| keep(*row));
    }

    /// Takes in events as they were published.
    pub(super) fn take_batch(&mut self, batch: EventBatch) {
        let Some(followed) = self.rows.get_mut(&batch.row) else {
            self.metrics.dropped("unknown_worker", batch.events.len());
            return;
        };
        self.ready.clear();
        for event in batch.events {
            match followed.cursor.offer(batch.incarnation, event, &mut self.ready) {
                Offer::Applied | Offer::Waiting => {}
                Offer::Gap(gap) => {
                    self.metrics.gap();
                    followed.repair.want(gap.from);
                }
                Offer::Duplicate => self.metrics.dropped("duplicate", 1),
                Offer::StaleIncarnation | Offer::NewIncarnation => self.metrics.dropped("other_life", 1),
            }
        }
        followed.apply_ready(&self.ready, &self.metrics);
        self.list(batch.row);
    }

    /// A worker says how far its log goes. What should have arrived by the next tick is asked for. `false` if the row is
    /// not followed in this life.
    pub(super) fn expect(&mut self, row: Row, incarnation: Incarnation, kv_sequence: u64) -> bool {
        let followed = self.rows.get_mut(&row);
        let Some(followed) = followed.filter(|row| row.cursor.incarnation() == Some(incarnation)) else {
            return false;
        };
        followed.repair.expect(kv_sequence);
        true
    }

    /// Where `row` stands; `None` if it is not followed.
    pub(super) fn standing(&self, row: Row) -> Option<Standing> {
        let followed = self.rows.get(&row)?;
        Some(Standing {
            applied: followed.cursor.applied(),
            is_repairing: followed.repair.is_under_way(),
            awaits_whole_log: followed.repair.awaits_whole_log(),
        })
    }

    /// Looks for gaps whose repair was not answered or did not help.
    pub(super) fn tick(&mut self) {
        for (row, followed) in &mut self.rows {
            followed.repair.tick(&followed.cursor);
            if followed.repair.is_due() && !std::mem::replace(&mut followed.is_listed, true) {
                self.listed.push_back(*row);
                self.has_news = true;
            }
        }
    }

    /// Up to `room` repairs that are to be asked for now. Each is answered through [`repaired`](Self::repaired), once.
    pub(super) fn due(&mut self, room: usize) -> Vec<Repair> {
        let mut due = Vec::new();
        if room == 0 || !std::mem::take(&mut self.has_news) {
            return due;
        }
        let mut held_up = VecDeque::new();
        while due.len() < room
            && let Some(row) = self.listed.pop_front()
        {
            if self.under_way.get(&row.worker).is_some_and(|repairs| *repairs >= REPAIRS_PER_WORKER) {
                held_up.push_back(row);
            } else {
                due.extend(self.start(row));
            }
        }
        // What found no room is looked at again when a repair has ended.
        held_up.append(&mut self.listed);
        self.listed = held_up;
        due
    }

    fn start(&mut self, row: Row) -> Option<Repair> {
        let followed = self.rows.get_mut(&row)?;
        followed.is_listed = false;
        let incarnation = followed.cursor.incarnation()?;
        let number = self.repairs + 1;
        let from = followed.repair.start(number, &followed.cursor)?;
        if from == 0 {
            followed.cursor.hold();
        }
        let applied = followed.cursor.applied();
        self.repairs = number;
        *self.under_way.entry(row.worker).or_default() += 1;
        Some(Repair { row, incarnation, from, applied, number })
    }

    /// Takes in the answer to a repair; `None` if there was none. An answer to a question of before the row left, moved or
    /// changed its life is dropped.
    pub(super) fn repaired(&mut self, repair: Repair, answer: Option<RepairAnswer>) {
        self.metrics.repair(match answer {
            Some(RepairAnswer::Events { .. }) => "events",
            Some(RepairAnswer::Snapshot(_)) => "snapshot",
            None => "unanswered",
        });
        self.make_room(repair.row.worker);
        let followed = self.rows.get_mut(&repair.row);
        let Some(followed) = followed.filter(|followed| followed.repair.awaits(repair.number)) else {
            return;
        };
        let last = answer.as_ref().map(RepairAnswer::last);
        self.ready.clear();
        match answer {
            Some(RepairAnswer::Snapshot(snapshot)) => {
                followed.replace(repair.incarnation, &snapshot, &mut self.ready, &self.metrics);
                followed.resume(&mut self.ready, &self.metrics);
            }
            Some(RepairAnswer::Events { events, .. }) => {
                followed.cursor.resume(&mut self.ready);
                for event in events {
                    // A gap that is left, or new, is asked for next.
                    let _: Offer = followed.cursor.offer(repair.incarnation, event, &mut self.ready);
                }
                followed.apply_ready(&self.ready, &self.metrics);
            }
            None => followed.resume(&mut self.ready, &self.metrics),
        }
        followed.repair.ended(last, &followed.cursor);
        self.list(repair.row);
    }

    fn make_room(&mut self, worker: WorkerId) {
        if let Some(repairs) = self.under_way.get_mut(&worker) {
            *repairs = repairs.saturating_sub(1);
            if *repairs == 0 {
                self.under_way.remove(&worker);
            }
        }
        self.has_news = true;
    }
}

impl Followed {
    fn apply_ready(&mut self, ready: &[SequencedEvent], metrics: &IngestMetrics) {
        if ready.is_empty() {
            return;
        }
        metrics.applied(ready.len());
        let applied = self.index.apply(self.slot, ready.iter().map(|event| &event.event));
        self.note(applied, metrics);
    }

    /// Applies what was held back for a snapshot.
    fn resume(&mut self, ready: &mut Vec<SequencedEvent>, metrics: &IngestMetrics) {
        ready.clear();
        self.cursor.resume(ready);
        self.apply_ready(ready, metrics);
    }

    /// A snapshot replaces the row's state at once, then the events that waited behind it apply.
    fn replace(
        &mut self,
        incarnation: Incarnation,
        snapshot: &Snapshot,
        ready: &mut Vec<SequencedEvent>,
        metrics: &IngestMetrics,
    ) {
        ready.clear();
        let offer = self.cursor.offer_snapshot(incarnation, snapshot.seq, ready);
        if let SnapshotOffer::Replace { .. } = offer {
            let replaced = self.index.replace(self.slot, snapshot);
            self.repair.replaced(replaced.is_ok());
            self.note(replaced, metrics);
            self.apply_ready(ready, metrics);
        }
    }

    /// An event that the index refused leaves the row's state in doubt, which a snapshot repairs. An unknown kind is
    /// from a newer worker and says nothing about the rest; an index that is full refuses a snapshot too.
    fn note(&mut self, applied: Result<(), Refused>, metrics: &IngestMetrics) {
        let Err(refused) = applied else { return };
        let reason = refused.reason();
        metrics.refused(reason);
        let is_in_vain = matches!(
            reason,
            RefusalReason::UnknownKind | RefusalReason::SlotOutOfRange | RefusalReason::Full
        );
        if !is_in_vain && self.repair.doubt() {
            tracing::warn!(slot = self.slot.0, %refused, "the index refused a KV event; asking for a snapshot");
        }
    }
}

#[cfg(test)]
mod tests;
