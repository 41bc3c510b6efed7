//! What a holder writes into its log (`book rules 1 to 4`).

use super::KeptBlock;
use crate::Alias;
use std::sync::Arc;
use switchtower_ids::{Life, ReservationKey, Row};

/// A reservation on a row. A higher attempt replaces the lower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booked {
    /// The reservation.
    pub key: ReservationKey,
    /// 1, 2, 3 … as the request moves.
    pub attempt: u32,
    /// The row.
    pub row: Row,
    /// The life of the worker it was made for.
    pub life: Life,
    /// Prompt tokens not cached there.
    pub prefill_tokens: u64,
    /// The prompt's blocks at kept depths.
    pub blocks: Arc<[KeptBlock]>,
    /// Tokens the caller expects back.
    pub expected_output_tokens: Option<u64>,
    /// The caller's own name for it.
    pub alias: Option<Alias>,
}

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Booked on a row.
    Booked(Booked),
    /// The prompt of this attempt is prefilled.
    PrefillComplete {
        /// The reservation.
        key: ReservationKey,
        /// The attempt; one that was replaced meanwhile changes nothing.
        attempt: u32,
    },
    /// The output occupies `total_blocks` blocks by now.
    OutputGrew {
        /// The reservation.
        key: ReservationKey,
        /// Absolute total, merged by maximum.
        total_blocks: u64,
    },
    /// Over, for all attempts.
    Released {
        /// The reservation.
        key: ReservationKey,
        /// Whether the caller asked for it, which leaves a tombstone for its alias.
        by_caller: bool,
    },
}

/// An entry with its number in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// 1, 2, 3 …
    pub sequence: u64,
    /// What happened.
    pub entry: Entry,
}

/// Numbers entries: the writing end of one log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Log {
    last: u64,
}

impl Log {
    /// The entry under the next number.
    #[must_use]
    pub fn append(&mut self, entry: Entry) -> LogEntry {
        self.last += 1;
        LogEntry { sequence: self.last, entry }
    }
}
