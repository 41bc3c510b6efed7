//! What one row's log still needs, and when to ask for it (again).
//!
//! At most one repair of a row is under way. One that was not answered, or did not help, is asked for again later, later
//! each time, and never at once: a worker that answers nonsense, or that has no log to show, must not keep the router
//! busy, nor the router it (B22, B139).

use switchtower_ids::{Incarnation, Row};
use switchtower_kv::{
    cursor::Cursor,
    event::{SequencedEvent, Snapshot},
};

/// Ticks between two snapshots that were asked for because the index refused an event.
const DOUBT_TICKS: u32 = 20;

/// Longest pause after a repair that did not help, in ticks.
const PAUSE_TICKS_MAX: u32 = 64;

/// A row whose log was not answered to its end by then is not waited for any longer: ticks, and repairs that did not help.
const WHOLE_LOG_TICKS_MAX: u32 = 60;
const WHOLE_LOG_FUTILE_MAX: u32 = 4;

/// A part of a log that is to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repair {
    pub(super) row: Row,
    pub(super) incarnation: Incarnation,
    /// The first event wanted; 0 asks for a snapshot.
    pub(super) from: u64,
    /// What has been applied: a snapshot must include at least that.
    pub(super) applied: u64,
    /// Tells its answer from that to an earlier one, which may be about another life or another index.
    pub(super) number: u64,
}

/// What a repair brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RepairAnswer {
    /// Events, as many as fitted into one message; `last` is the log's newest.
    Events { events: Vec<SequencedEvent>, last: u64 },
    /// The whole state.
    Snapshot(Snapshot),
}

impl RepairAnswer {
    /// The newest event of the log when this was answered.
    pub(super) fn last(&self) -> u64 {
        match self {
            Self::Events { last, .. } => *last,
            Self::Snapshot(snapshot) => snapshot.seq,
        }
    }
}

/// A repair that was asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u64,
    /// What was applied when it was asked for.
    applied: u64,
}

/// Where one row stands.
#[derive(Debug, Default)]
pub(super) struct RepairState {
    wanted: Option<u64>,
    under_way: Option<Asked>,
    /// Until an answer has gone to the log's end.
    whole_log: bool,
    /// Ticks since then.
    whole_log_ticks: u32,
    /// The index refused something: only a snapshot helps.
    in_doubt: bool,
    /// Ticks until a doubt may ask for the next snapshot.
    patience: u32,
    /// Ticks until the next repair may be asked for, and how many in a row did not help.
    pause: u32,
    futile: u32,
    /// How far the log goes by its worker's word, and what of it should be here since the last tick.
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

    /// The index refused an event. Returns whether that is news.
    pub(super) fn doubt(&mut self) -> bool {
        let is_news = !self.in_doubt;
        self.in_doubt = true;
        if self.patience == 0 {
            self.wanted = Some(0);
            self.patience = DOUBT_TICKS;
        }
        is_news
    }

    pub(super) fn replaced(&mut self, well: bool) {
        self.in_doubt = !well;
    }

    /// Whether a repair is to be started now.
    pub(super) fn is_due(&self) -> bool {
        self.wanted.is_some() && self.under_way.is_none() && self.pause == 0
    }

    /// Starts the repair `number` if one is due; returns the first event wanted.
    pub(super) fn start(&mut self, number: u64, cursor: &Cursor) -> Option<u64> {
        if !self.is_due() {
            return None;
        }
        let from = self.wanted.take()?;
        self.under_way = Some(Asked { number, applied: cursor.applied() });
        Some(from)
    }

    /// Whether the row's state may soon be complete for the first time, so that it is worth waiting for.
    pub(super) fn awaits_whole_log(&self) -> bool {
        self.whole_log && self.whole_log_ticks < WHOLE_LOG_TICKS_MAX && self.futile < WHOLE_LOG_FUTILE_MAX
    }

    /// Whether a repair is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether the repair `number` is the one that is under way.
    pub(super) fn awaits(&self, number: u64) -> bool {
        self.under_way.is_some_and(|asked| asked.number == number)
    }

    /// The repair is over. If it was answered, `last` was the log's newest event then, and `cursor` has taken what the
    /// answer brought.
    pub(super) fn ended(&mut self, last: Option<u64>, cursor: &Cursor) {
        let Some(asked) = self.under_way.take() else { return };
        self.whole_log &= last.is_none_or(|last| cursor.applied() < last);
        let is_complete =
            cursor.gap().is_none() && cursor.applied() >= self.overdue && !self.in_doubt && !self.whole_log;
        let went_on = cursor.applied() > asked.applied;
        if last.is_some() && (is_complete || went_on) {
            self.futile = 0;
            // Long answers come in pages: the next one at once, but only if this one helped.
            if went_on && (cursor.gap().is_some() || last.is_some_and(|last| last > cursor.applied())) {
                self.want(cursor.applied() + 1);
            }
            return;
        }
        self.pause =
            1_u32.checked_shl(self.futile).map_or(PAUSE_TICKS_MAX, |ticks| ticks.min(PAUSE_TICKS_MAX));
        self.futile = self.futile.saturating_add(1);
    }

    pub(super) fn tick(&mut self, cursor: &Cursor) {
        self.patience = self.patience.saturating_sub(1);
        self.pause = self.pause.saturating_sub(1);
        if self.whole_log {
            self.whole_log_ticks = self.whole_log_ticks.saturating_add(1);
            self.want(cursor.applied() + 1);
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
