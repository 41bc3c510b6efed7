//! Workers, their lives, their ranks, and the row that a request is booked on.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// One inference engine instance. The name stays across restarts; [`Incarnation`] tells the lives apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(pub u64);

/// One life of a worker: drawn anew at every start. Opaque: lives are ordered by the store revision of their
/// registration, not by this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

/// One life of a worker, with the store revision of its registration, which orders lives (`book rule 10`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Life {
    /// Which life.
    pub incarnation: Incarnation,
    /// When it was registered; a life that registers again keeps its incarnation and gets a later revision.
    pub revision: u64,
}

impl Life {
    /// Whether this life is not older than `other`.
    #[must_use]
    pub fn is_current_beside(self, other: Self) -> bool {
        self.incarnation == other.incarnation || self.revision > other.revision
    }
}

/// Data-parallel rank inside a worker, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

/// One (worker, rank): what may receive a request. Written `worker/rank`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Row {
    /// The worker.
    pub worker: WorkerId,
    /// The rank inside it.
    pub rank: Rank,
}

impl Row {
    /// The row of `worker` and `rank`.
    #[must_use]
    pub const fn new(worker: u64, rank: u32) -> Self {
        Self { worker: WorkerId(worker), rank: Rank(rank) }
    }
}

/// Text that is not a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a worker row: write `worker_id/dp_rank`, for example `7/0`")]
pub struct ParseRowError(String);

impl FromStr for Row {
    type Err = ParseRowError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (worker, rank) = text.split_once('/')?;
            Some(Row::new(worker.parse().ok()?, rank.parse().ok()?))
        };
        parse().ok_or_else(|| ParseRowError(text.to_owned()))
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.worker, self.rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_and_read_as_worker_slash_rank() {
        let row = Row::new(7, 3);
        assert_eq!(row.to_string(), "7/3");
        assert_eq!("7/3".parse(), Ok(row));
    }

    #[test]
    fn text_that_is_no_row_is_refused_with_an_example() {
        for text in ["", "7", "7/", "/3", "a/0", "-1/0", "7/0/1", "7/4294967296"] {
            let error = text.parse::<Row>().unwrap_err().to_string();
            assert!(error.contains("worker_id/dp_rank"), "{error}");
        }
    }
}
