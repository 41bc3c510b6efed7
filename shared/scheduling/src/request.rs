//! What the scheduler is told about a request, and what it answers.

use crate::Rejection;
use std::{ops::RangeInclusive, sync::Arc};
use switchtower_ids::{Incarnation, Rank, ReservationKey, Row, SequenceHash, WorkerId};
use switchtower_kv::index::TierBlocks;

/// Which rows the caller allows. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Constraints {
    /// Only these workers; empty means any.
    pub allowed_workers: Vec<WorkerId>,
    /// Exactly this worker, and this rank where given.
    pub pin: Option<Pin>,
    /// Only ranks in this range.
    pub ranks: Option<RangeInclusive<u32>>,
    /// Only workers with all of these taints.
    pub required_taints: Vec<String>,
    /// Workers with these taints cost less to policies that read `ROUTING`.
    pub preferred_taints: Vec<String>,
    /// Not these lives of workers: the request failed there.
    pub failed: Vec<(WorkerId, Incarnation)>,
}

impl Constraints {
    /// Sorts the lists and drops repeats, so that each row costs a search however long a caller's lists are.
    pub fn sort(&mut self) {
        sort(&mut self.allowed_workers);
        sort(&mut self.required_taints);
        sort(&mut self.preferred_taints);
        sort(&mut self.failed);
    }

    /// Whether the lists are as [`sort`](Self::sort) leaves them.
    #[must_use]
    pub fn are_sorted(&self) -> bool {
        is_sorted(&self.allowed_workers)
            && is_sorted(&self.required_taints)
            && is_sorted(&self.preferred_taints)
            && is_sorted(&self.failed)
    }

    /// Whether they exclude nobody, whoever there is.
    #[must_use]
    pub const fn are_open(&self) -> bool {
        let Self { allowed_workers, pin, ranks, required_taints, preferred_taints: _, failed } = self;
        allowed_workers.is_empty()
            && pin.is_none()
            && ranks.is_none()
            && required_taints.is_empty()
            && failed.is_empty()
    }

    /// What decides who is eligible: waiters with equal ones are blocked by the same rows.
    #[must_use]
    pub fn without_preferences(&self) -> Self {
        let Self { allowed_workers, pin, ranks, required_taints, failed, .. } = self;
        Self {
            allowed_workers: allowed_workers.clone(),
            pin: *pin,
            ranks: ranks.clone(),
            required_taints: required_taints.clone(),
            preferred_taints: Vec::new(),
            failed: failed.clone(),
        }
    }
}

fn sort<T: Ord>(list: &mut Vec<T>) {
    list.sort_unstable();
    list.dedup();
}

fn is_sorted<T: Ord>(list: &[T]) -> bool {
    list.is_sorted_by(|before, after| before < after)
}

/// A demand for one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pin {
    /// The worker.
    pub worker: WorkerId,
    /// The rank; any of the worker's where unset.
    pub rank: Option<Rank>,
}

/// A caller's own name for a reservation, with a fingerprint of the request it was made for (`book rule 3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The caller's id.
    pub id: Arc<str>,
    /// Equal for the same request, different for another.
    pub fingerprint: u64,
}

/// One request for one selection.
#[derive(Clone, Debug)]
pub struct Request {
    /// Key of the reservation to be made. Sent again under a live key, the request opens the next attempt.
    pub key: ReservationKey,
    /// Sequence hashes of the prompt's full blocks.
    pub blocks: Arc<[SequenceHash]>,
    /// Length of the prompt.
    pub prompt_tokens: u64,
    /// Tokens the caller expects back, where known.
    pub expected_output_tokens: Option<u64>,
    /// Which rows may take it.
    pub constraints: Constraints,
    /// The caller's priority; 0 unless given.
    pub priority: f64,
    /// The caller's session.
    pub session: Option<Arc<str>>,
    /// The caller's own name for the reservation.
    pub alias: Option<Alias>,
    /// When the request arrived, in milliseconds of the scheduler's clock.
    pub arrival_ms: u64,
    /// Until when it may wait; the configured longest wait applies too. A request that need not wait has no use for it.
    pub deadline_ms: Option<u64>,
}

/// Who chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    /// The partition's own policy.
    Policy,
    /// The fallback policy; the label says why.
    Fallback(&'static str),
}

/// A validated choice; booked, unless it was a preview.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// The reservation.
    pub key: ReservationKey,
    /// 1 for the first choice, higher after the request failed on a worker.
    pub attempt: u32,
    /// The row chosen.
    pub row: Row,
    /// The life of the worker that was chosen; dispatch carries it.
    pub incarnation: Incarnation,
    /// Base URL of the worker.
    pub endpoint: Arc<str>,
    /// Length of the prompt.
    pub prompt_tokens: u64,
    /// Prompt tokens that the row is believed to have cached, tiers weighted as configured.
    pub cached_tokens: u64,
    /// Cached blocks of the prompt on the row by tier, unweighted.
    pub overlap: TierBlocks,
    /// What the chosen row cost.
    pub cost: f64,
    /// Eligible rows that were scored.
    pub candidates: u32,
    /// Who chose.
    pub chosen_by: ChosenBy,
    /// From the request's arrival to this choice; for a higher attempt that includes its time on the worker that failed.
    pub waited_ms: u64,
}

/// The answer to a request that was submitted under `key`.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The request.
    pub key: ReservationKey,
    /// What came of it.
    pub result: Result<Selection, Rejection>,
}
