//! What one row's log still needs, and when to ask for it (again).
//!
//! At most one repair of a row is under way. One that was not answered, or did not close its gap, is asked for again at
//! the next tick, never at once: a worker that answers nonsense must not keep the router busy.

use switchtower_ids::{Incarnation, Row};
use switchtower_kv::cursor::Cursor;

/// Ticks between two snapshots that were asked for because the index refused an event.
const DOUBT_TICKS: u32 = 20;

/// A part of a log that is to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repair {
    pub(super) row: Row,
    pub(super) incarnation: Incarnation,
    /// The first event wanted; 0 asks for a snapshot.
    pub(super) from: u64,
}

/// Where one row stands.
#[derive(Debug, Default)]
pub(super) struct RepairState {
    wanted: Option<u64>,
    under_way: bool,
    /// Until the first answer.
    whole_log: bool,
    /// The index refused something: only a snapshot helps.
    in_doubt: bool,
    /// Ticks until a doubt may ask for the next snapshot.
    patience: u32,
    /// How far the log goes by its worker's word, and whether a tick has passed since.
    expected: u64,
    overdue: u64,
}

impl RepairState {
    /// A row that is new: its whole log is wanted.
    pub(super) fn whole_log() -> Self {
        Self { wanted: Some(1), whole_log: true, ..Self::default() }
    }

    pub(super) fn want(&mut self, from: u64) {
        self.wanted = Some(self.wanted.map_or(from, |wanted| wanted.min(from)));
    }

    pub(super) fn expect(&mut self, sequence: u64) {
        self.expected = self.expected.max(sequence);
    }

    pub(super) fn doubt(&mut self) {
        self.in_doubt = true;
        if self.patience == 0 {
            self.wanted = Some(0);
            self.patience = DOUBT_TICKS;
        }
    }

    pub(super) fn replaced(&mut self, well: bool) {
        self.in_doubt = !well;
    }

    /// The repair to start now, if any.
    pub(super) fn start(&mut self) -> Option<u64> {
        if self.under_way {
            return None;
        }
        let from = self.wanted.take()?;
        self.under_way = true;
        Some(from)
    }

    pub(super) fn answered(&mut self, well: bool) {
        self.under_way = false;
        self.whole_log &= !well;
    }

    pub(super) fn tick(&mut self, cursor: &Cursor) {
        self.patience = self.patience.saturating_sub(1);
        if self.whole_log {
            self.want(1);
        }
        if self.in_doubt && self.patience == 0 {
            self.doubt();
        }
        if let Some(gap) = cursor.gap() {
            self.want(gap.from);
        } else if self.overdue > cursor.applied() {
            self.want(cursor.applied() + 1);
        }
        self.overdue = self.expected;
    }
}
