//! What a picker sees: scored rows and index-aligned columns.

use crate::{WorkerCacheInput, WorkerIdentity, WorkerLoadInput};
use std::cell::{OnceCell, RefCell};

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

/// Rows and their costs as columns, and as rows once somebody wants them: most pickers read costs alone.
#[derive(Debug)]
pub(crate) struct ScoredRows<'a> {
    pub(crate) workers: &'a [WorkerIdentity],
    pub(crate) costs: &'a [f64],
    rows: OnceCell<Vec<ScoredWorkerCandidate>>,
    /// Taken for `rows`, so that they need no allocation of their own.
    buffer: RefCell<Vec<ScoredWorkerCandidate>>,
}

impl<'a> ScoredRows<'a> {
    pub(crate) const fn new(
        workers: &'a [WorkerIdentity],
        costs: &'a [f64],
        buffer: Vec<ScoredWorkerCandidate>,
    ) -> Self {
        Self { workers, costs, rows: OnceCell::new(), buffer: RefCell::new(buffer) }
    }

    fn rows(&self) -> &[ScoredWorkerCandidate] {
        self.rows.get_or_init(|| {
            let mut rows = self.buffer.take();
            rows.clear();
            let scored = self.workers.iter().zip(self.costs);
            rows.extend(scored.map(|(worker, cost)| ScoredWorkerCandidate { worker: *worker, cost: *cost }));
            rows
        })
    }

    /// The buffer, to be used again.
    pub(crate) fn into_buffer(self) -> Vec<ScoredWorkerCandidate> {
        self.rows.into_inner().unwrap_or_else(|| self.buffer.into_inner())
    }
}

/// Scored rows, and a column for each group that the picker asked for, all of one length.
#[derive(Clone, Copy, Debug)]
pub struct WorkerInputView<'a> {
    pub(crate) scored: &'a ScoredRows<'a>,
    pub(crate) cache: Option<&'a [WorkerCacheInput]>,
    pub(crate) load: Option<&'a [WorkerLoadInput]>,
    pub(crate) preferred_taint_multiplier: Option<&'a [f64]>,
}

impl<'a> WorkerInputView<'a> {
    /// The eligible rows; a pick is an index into this slice.
    #[must_use]
    pub fn candidates(&self) -> &'a [ScoredWorkerCandidate] {
        self.scored.rows()
    }

    /// The cost of every candidate: the quickest to read where nothing else decides.
    #[must_use]
    pub const fn costs(&self) -> &'a [f64] {
        self.scored.costs
    }

    /// Who every candidate is.
    #[must_use]
    pub const fn workers(&self) -> &'a [WorkerIdentity] {
        self.scored.workers
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
