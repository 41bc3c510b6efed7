//! The outcome table: every way in which a request can end without a selection, with its HTTP status, gRPC code,
//! metric label and message. Nothing else in the project maps limits to statuses.

use std::fmt;
use switchtower_ids::{Row, WorkerId};

/// The kind of an outcome: one row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// No worker may take the request.
    NothingEligible,
    /// Every worker that may take the request is over an overload threshold.
    AllOverloaded,
    /// The pinned row is over an overload threshold; pins are not rerouted.
    PinnedOverloaded,
    /// The pin contradicts the fleet or the request's other constraints.
    ImpossiblePin,
    /// As many requests wait as may.
    QueueFull,
    /// The deadline passed while the request waited.
    DeadlineExceeded,
    /// The caller went away.
    Cancelled,
    /// The router is going down.
    ShuttingDown,
    /// Another request lives under this reservation id.
    IdConflict,
    /// As many reservations live as may.
    TooManyReservations,
    /// The reservation id is not one that can be kept.
    InvalidId,
}

/// One row of the outcome table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutcomeRow {
    /// HTTP status.
    pub http_status: u16,
    /// gRPC status code.
    pub grpc_code: u8,
    /// Metric label and error code.
    pub label: &'static str,
    /// Whether the same request may succeed if it is sent again.
    pub retryable: bool,
}

const fn row(http_status: u16, grpc_code: u8, label: &'static str, retryable: bool) -> OutcomeRow {
    OutcomeRow { http_status, grpc_code, label, retryable }
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 11] = [
        Self::NothingEligible,
        Self::AllOverloaded,
        Self::PinnedOverloaded,
        Self::ImpossiblePin,
        Self::QueueFull,
        Self::DeadlineExceeded,
        Self::Cancelled,
        Self::ShuttingDown,
        Self::IdConflict,
        Self::TooManyReservations,
        Self::InvalidId,
    ];

    /// This outcome's row of the table. The gRPC codes: 1 cancelled, 3 invalid argument, 4 deadline exceeded,
    /// 6 already exists, 8 resource exhausted, 14 unavailable.
    #[must_use]
    pub const fn row(self) -> OutcomeRow {
        match self {
            Self::NothingEligible => row(503, 14, "nothing_eligible", true),
            Self::AllOverloaded => row(429, 8, "all_overloaded", true),
            Self::PinnedOverloaded => row(429, 8, "pinned_overloaded", true),
            Self::ImpossiblePin => row(400, 3, "impossible_pin", false),
            Self::QueueFull => row(429, 8, "queue_full", true),
            Self::DeadlineExceeded => row(504, 4, "deadline_exceeded", true),
            Self::Cancelled => row(499, 1, "cancelled", false),
            Self::ShuttingDown => row(503, 14, "shutting_down", true),
            Self::IdConflict => row(409, 6, "id_conflict", false),
            Self::TooManyReservations => row(429, 8, "too_many_reservations", true),
            Self::InvalidId => row(400, 3, "invalid_id", false),
        }
    }
}

/// Why rows were not eligible: how many fell to each rule, counted at the first rule that applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Not in the request's allow-list.
    pub not_allowed: u32,
    /// Not the pinned worker or rank.
    pub not_pinned: u32,
    /// Rank outside the request's bounds.
    pub rank_bounds: u32,
    /// Without a taint that the request requires.
    pub missing_taint: u32,
    /// The worker drains.
    pub draining: u32,
    /// The request failed there before.
    pub failed_before: u32,
    /// Over an overload threshold.
    pub overloaded: u32,
    /// Dropped by the policy's own filters.
    pub policy_filter: u32,
}

impl fmt::Display for Exclusions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.not_allowed, "not in the allow-list"),
            (self.not_pinned, "not pinned"),
            (self.rank_bounds, "outside the rank bounds"),
            (self.missing_taint, "without a required taint"),
            (self.draining, "draining"),
            (self.failed_before, "failed this request before"),
            (self.overloaded, "overloaded"),
            (self.policy_filter, "dropped by the policy's filters"),
        ];
        let mut separator = "";
        for (count, reason) in counts.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{count} {reason}")?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("no worker serves this model now") } else { Ok(()) }
    }
}

/// Why a request got no selection, with what there is to say about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// See [`Outcome::NothingEligible`].
    #[error("no eligible worker: {0}; try again, or relax the request's constraints")]
    NothingEligible(Exclusions),
    /// See [`Outcome::AllOverloaded`].
    #[error("all {overloaded} eligible workers are overloaded; try again later")]
    AllOverloaded {
        /// Rows that only the overload threshold excluded.
        overloaded: u32,
    },
    /// See [`Outcome::PinnedOverloaded`].
    #[error("the pinned worker {0} is overloaded; try again later, or do not pin")]
    PinnedOverloaded(Row),
    /// See [`Outcome::ImpossiblePin`].
    #[error("cannot pin to worker {worker}: {reason}")]
    ImpossiblePin {
        /// The pinned worker.
        worker: WorkerId,
        /// What contradicts the pin.
        reason: &'static str,
    },
    /// See [`Outcome::QueueFull`].
    #[error("the queue is full: {waiting} requests wait, the limit is {limit}; try again later")]
    QueueFull {
        /// How many wait.
        waiting: usize,
        /// How many may.
        limit: usize,
    },
    /// See [`Outcome::DeadlineExceeded`].
    #[error("no worker became free within {waited_ms} ms; try again later, or allow a longer wait")]
    DeadlineExceeded {
        /// How long the request waited.
        waited_ms: u64,
    },
    /// See [`Outcome::Cancelled`].
    #[error("the request was cancelled")]
    Cancelled,
    /// See [`Outcome::ShuttingDown`].
    #[error("the router is shutting down; send the request to another replica")]
    ShuttingDown,
    /// See [`Outcome::IdConflict`].
    #[error("the reservation id `{0}` belongs to another request that is still live; use another id")]
    IdConflict(String),
    /// See [`Outcome::TooManyReservations`].
    #[error("{limit} requests are in flight, which is the limit; try again later")]
    TooManyReservations {
        /// How many may live.
        limit: usize,
    },
    /// See [`Outcome::InvalidId`].
    #[error("the reservation id has {bytes} bytes: use one of at most {limit}")]
    InvalidId {
        /// Its length.
        bytes: usize,
        /// The longest that is kept.
        limit: usize,
    },
}

impl Rejection {
    /// Which row of the outcome table applies.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::NothingEligible(_) => Outcome::NothingEligible,
            Self::AllOverloaded { .. } => Outcome::AllOverloaded,
            Self::PinnedOverloaded(_) => Outcome::PinnedOverloaded,
            Self::ImpossiblePin { .. } => Outcome::ImpossiblePin,
            Self::QueueFull { .. } => Outcome::QueueFull,
            Self::DeadlineExceeded { .. } => Outcome::DeadlineExceeded,
            Self::Cancelled => Outcome::Cancelled,
            Self::ShuttingDown => Outcome::ShuttingDown,
            Self::IdConflict(_) => Outcome::IdConflict,
            Self::TooManyReservations { .. } => Outcome::TooManyReservations,
            Self::InvalidId { .. } => Outcome::InvalidId,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Design invariant 8: every limit has a typed outcome, one HTTP status, one gRPC code, one metric label.
    #[test]
    fn invariant_8_the_outcome_table_is_what_the_design_says() {
        let expected = [
            (Outcome::NothingEligible, 503, 14),
            (Outcome::AllOverloaded, 429, 8),
            (Outcome::PinnedOverloaded, 429, 8),
            (Outcome::ImpossiblePin, 400, 3),
            (Outcome::QueueFull, 429, 8),
            (Outcome::DeadlineExceeded, 504, 4),
            (Outcome::Cancelled, 499, 1),
            (Outcome::ShuttingDown, 503, 14),
            (Outcome::IdConflict, 409, 6),
            (Outcome::TooManyReservations, 429, 8),
            (Outcome::InvalidId, 400, 3),
        ];
        assert_eq!(expected.map(|(outcome, ..)| outcome), Outcome::ALL);
        for (outcome, http_status, grpc_code) in expected {
            assert_eq!(
                (outcome.row().http_status, outcome.row().grpc_code),
                (http_status, grpc_code),
                "{outcome:?}"
            );
        }
        let labels: HashSet<_> = Outcome::ALL.iter().map(|outcome| outcome.row().label).collect();
        assert_eq!(labels.len(), Outcome::ALL.len(), "labels tell outcomes apart");
    }

    #[test]
    fn exclusions_are_named_with_their_counts() {
        let exclusions = Exclusions { draining: 2, missing_taint: 1, ..Exclusions::default() };
        assert_eq!(exclusions.to_string(), "1 without a required taint, 2 draining");
        assert_eq!(Exclusions::default().to_string(), "no worker serves this model now");
    }
}
