//! What a picker sees: scored rows and index-aligned columns.

use crate::{WorkerCacheInput, WorkerIdentity, WorkerLoadInput};

/// One row with the sum of all scorers' contributions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoredWorkerCandidate {
    pub(crate) worker: WorkerIdentity,
    pub(crate) cost: f64,
}

impl ScoredWorkerCandidate {
    /// Who this row is.
    #[must_use]
    pub const fn worker(&self) -> WorkerIdentity {
        self.worker
    }

    /// The accumulated cost: finite, lower is better; 0 if the policy has no scorers.
    #[must_use]
    pub const fn cost(&self) -> f64 {
        self.cost
    }
}

/// Scored rows, and a column for each group that the picker asked for, all of one length.
#[derive(Clone, Copy, Debug)]
pub struct WorkerInputView<'a> {
    pub(crate) candidates: &'a [ScoredWorkerCandidate],
    pub(crate) cache: Option<&'a [WorkerCacheInput]>,
    pub(crate) load: Option<&'a [WorkerLoadInput]>,
    pub(crate) preferred_taint_multiplier: Option<&'a [f64]>,
}

impl<'a> WorkerInputView<'a> {
    /// The eligible rows; a pick is an index into this slice.
    #[must_use]
    pub const fn candidates(&self) -> &'a [ScoredWorkerCandidate] {
        self.candidates
    }

    /// Overlap per row; needs [`crate::WorkerInputs::CACHE`].
    #[must_use]
    pub const fn cache(&self) -> Option<&'a [WorkerCacheInput]> {
        self.cache
    }

    /// Load per row; needs [`crate::WorkerInputs::LOAD`].
    #[must_use]
    pub const fn load(&self) -> Option<&'a [WorkerLoadInput]> {
        self.load
    }

    /// Preferred-taint multiplier per row; needs [`crate::WorkerInputs::ROUTING`].
    #[must_use]
    pub const fn preferred_taint_multiplier(&self) -> Option<&'a [f64]> {
        self.preferred_taint_multiplier
    }
}
