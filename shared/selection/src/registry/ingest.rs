//! From KV events to the index: one cursor per row, and what has to be repaired.
//!
//! Pure bookkeeping around the shared indexes: whoever drives it asks workers for what [`Ingest::due`] names and brings
//! the answers. Every row begins with a request for its whole log, so events of a worker that is not known yet need not
//! be kept: what they said is asked for once the worker is known.

use super::repair::{Repair, RepairState};
use crate::{index::SharedIndex, metrics::IngestMetrics};
use std::collections::HashMap;
use switchtower_ids::{Incarnation, Row};
use switchtower_kv::{
    cursor::{Cursor, Offer, SnapshotOffer},
    event::{EventBatch, RangeAnswer, SequencedEvent, Snapshot},
    index::{RefusalReason, Refused, RowSlot},
};

/// A row whose log is followed.
struct Followed {
    slot: RowSlot,
    index: SharedIndex,
    cursor: Cursor,
    repair: RepairState,
}

/// All rows' cursors.
pub(super) struct Ingest {
    rows: HashMap<Row, Followed>,
    metrics: IngestMetrics,
    ready: Vec<SequencedEvent>,
}

impl Ingest {
    pub(super) fn new(metrics: IngestMetrics) -> Self {
        Self { rows: HashMap::new(), metrics, ready: Vec::new() }
    }

    /// Follows `row` in this life. Another life, slot or index than before starts over, with an empty column.
    pub(super) fn follow(&mut self, row: Row, incarnation: Incarnation, slot: RowSlot, index: &SharedIndex) {
        let followed = self.rows.entry(row).or_insert_with(|| Followed {
            slot,
            index: index.clone(),
            cursor: Cursor::new(),
            repair: RepairState::default(),
        });
        let moved = followed.slot != slot || !followed.index.is(index);
        if moved {
            followed.cursor.end();
            (followed.slot, followed.index) = (slot, index.clone());
        }
        if followed.cursor.begin(incarnation) {
            index.drop_row(slot);
            followed.repair = RepairState::whole_log();
        }
    }

    /// Follows no other rows than those that `keep` names.
    pub(super) fn retain(&mut self, keep: impl Fn(Row) -> bool) {
        self.rows.retain(|row, _| keep(*row));
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
    }

    /// A worker says how far its log goes. What should have arrived by the next tick is asked for.
    pub(super) fn expect(&mut self, row: Row, incarnation: Incarnation, kv_sequence: u64) {
        if let Some(followed) = self.rows.get_mut(&row)
            && followed.cursor.incarnation() == Some(incarnation)
        {
            followed.repair.expect(kv_sequence);
        }
    }

    /// Looks for gaps whose repair was not answered or did not help.
    pub(super) fn tick(&mut self) {
        for followed in self.rows.values_mut() {
            followed.repair.tick(&followed.cursor);
        }
    }

    /// Up to `room` repairs that are to be asked for now. Each is answered through [`repaired`](Self::repaired).
    pub(super) fn due(&mut self, room: usize) -> Vec<Repair> {
        let due = self.rows.iter_mut().filter_map(|(row, followed)| {
            let incarnation = followed.cursor.incarnation()?;
            let from = followed.repair.start()?;
            Some(Repair { row: *row, incarnation, from })
        });
        due.take(room).collect()
    }

    /// Takes in the answer to a repair; `None` if there was none.
    pub(super) fn repaired(&mut self, repair: Repair, answer: Option<RangeAnswer>) {
        let Some(followed) = self.rows.get_mut(&repair.row) else {
            return;
        };
        if followed.cursor.incarnation() != Some(repair.incarnation) {
            return;
        }
        self.metrics.repair(answer.as_ref());
        followed.repair.answered(answer.is_some());
        match answer {
            Some(RangeAnswer::Events { events }) => {
                self.ready.clear();
                for event in events {
                    let _: Offer = followed.cursor.offer(repair.incarnation, event, &mut self.ready);
                }
                followed.apply_ready(&self.ready, &self.metrics);
            }
            Some(RangeAnswer::TooOld { snapshot }) => {
                followed.replace(repair.incarnation, &snapshot, &mut self.ready, &self.metrics);
            }
            None => {}
        }
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
    /// from a newer worker and says nothing about the rest.
    fn note(&mut self, applied: Result<(), Refused>, metrics: &IngestMetrics) {
        let Err(refused) = applied else { return };
        metrics.refused(refused.reason());
        if refused.reason() != RefusalReason::UnknownKind {
            tracing::warn!(slot = self.slot.0, %refused, "the index refused a KV event; asking for a snapshot");
            self.repair.doubt();
        }
    }
}
