//! The three traits of a policy, and the policy they make up.

use crate::{
    CandidateColumns, KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerInputView, WorkerInputs,
    WorkerSelectionContext, WorkerSelectionPolicyError,
};

/// Gives every eligible row a cost. Lower is better; the contributions of a policy's scorers are summed.
///
/// Called serially by one scheduler: state needs no locks. Keep blocking IO out. Do not panic: return an error
/// (a panic is caught, costs the policy its state and this request its scores).
pub trait WorkerScorer: Send + 'static {
    /// The groups that [`score`](Self::score) reads. Read once, when the policy is built.
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::NONE
    }

    /// The finite cost of one row.
    ///
    /// # Errors
    /// Whatever keeps the scorer from giving a cost; the request is then served by the fallback policy.
    fn score(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError>;

    /// The costs of all rows at once, for scorers that compare rows or go through them column by column. `costs` has one
    /// place per row, filled with NaN: a place that is left alone is refused. Without one of its own, a scorer's
    /// [`score`](Self::score) is called for every row.
    ///
    /// # Errors
    /// As [`score`](Self::score).
    fn score_batch(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        rows: &CandidateColumns<'_>,
        costs: &mut [f64],
    ) -> Result<(), WorkerSelectionPolicyError> {
        for (candidate, cost) in rows.iter().zip(costs) {
            *cost = self.score(context, &candidate)?;
        }
        Ok(())
    }
}

/// Chooses one row among the scored ones.
pub trait WorkerPicker: Send + 'static {
    /// The groups that [`pick`](Self::pick) reads. Read once, when the policy is built.
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::NONE
    }

    /// An index into [`WorkerInputView::candidates`], which has at least one row.
    ///
    /// # Errors
    /// Whatever keeps the picker from choosing; the request is then served by the fallback policy.
    fn pick(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError>;
}

/// Drops rows for good, after the host's own eligibility. When a scorer or the picker fails later, the fallback chooses
/// among the rows that were kept.
///
/// A filter is a part of its policy: while it fails itself, and while its policy is quarantined, it does not run, and the
/// fallback sees every row that the host found eligible. What must hold whatever happens belongs into the request's
/// constraints (allowed workers, required taints).
pub trait WorkerFilter: Send + 'static {
    /// The groups that [`keep`](Self::keep) reads. Read once, when the policy is built.
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::NONE
    }

    /// Whether the row stays a candidate.
    ///
    /// # Errors
    /// Whatever keeps the filter from deciding; the request is then served by the fallback policy, over the rows
    /// that the host found eligible.
    fn keep(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<bool, WorkerSelectionPolicyError>;
}

/// Scorers, one picker and optional filters, with the inputs they asked for when they were put together.
pub struct WorkerSelectionPolicy {
    worker_type: &'static str,
    pub(crate) filters: Vec<(WorkerInputs, Box<dyn WorkerFilter>)>,
    pub(crate) scorers: Vec<(WorkerInputs, Box<dyn WorkerScorer>)>,
    pub(crate) picker: (WorkerInputs, Box<dyn WorkerPicker>),
    required: WorkerInputs,
}

impl WorkerSelectionPolicy {
    /// A policy of `scorers` and a `picker` for workers of the stage `worker_type` ("aggregated", "prefill",
    /// "decode"). The configuration is the one the factory was given; what a policy needs of it, its own parts keep.
    #[must_use]
    pub fn new(
        _config: KvRouterConfig,
        worker_type: &'static str,
        scorers: Vec<Box<dyn WorkerScorer>>,
        picker: Box<dyn WorkerPicker>,
    ) -> Self {
        let scorers: Vec<_> =
            scorers.into_iter().map(|scorer| (scorer.required_worker_inputs(), scorer)).collect();
        let picker = (picker.required_worker_inputs(), picker);
        let required = scorers.iter().fold(picker.0, |union, (inputs, _)| union | *inputs);
        Self { worker_type, filters: Vec::new(), scorers, picker, required }
    }

    /// The same policy with filters, which run in order before the scorers.
    #[must_use]
    pub fn with_filters(mut self, filters: Vec<Box<dyn WorkerFilter>>) -> Self {
        for filter in filters {
            let inputs = filter.required_worker_inputs();
            self.required |= inputs;
            self.filters.push((inputs, filter));
        }
        self
    }

    /// The stage that the policy was built for.
    #[must_use]
    pub const fn worker_type(&self) -> &'static str {
        self.worker_type
    }

    /// Whether it drops rows of its own accord.
    #[must_use]
    pub const fn has_filters(&self) -> bool {
        !self.filters.is_empty()
    }

    /// The union of what the parts read.
    #[must_use]
    pub const fn required_worker_inputs(&self) -> WorkerInputs {
        self.required
    }
}

impl std::fmt::Debug for WorkerSelectionPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerSelectionPolicy")
            .field("worker_type", &self.worker_type)
            .field("filters", &self.filters.len())
            .field("scorers", &self.scorers.len())
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}

/// Builds a policy; runs once per partition and stage, and again after a quarantine.
pub trait WorkerSelectionPolicyFactory: Send + Sync + 'static {
    /// A policy with fresh state.
    fn build(
        &self,
        config: &KvRouterConfig,
        worker_type: &'static str,
        partition: RoutingPartitionRef<'_>,
    ) -> WorkerSelectionPolicy;
}

impl<F> WorkerSelectionPolicyFactory for F
where
    F: Fn(&KvRouterConfig, &'static str, RoutingPartitionRef<'_>) -> WorkerSelectionPolicy
        + Send
        + Sync
        + 'static,
{
    fn build(
        &self,
        config: &KvRouterConfig,
        worker_type: &'static str,
        partition: RoutingPartitionRef<'_>,
    ) -> WorkerSelectionPolicy {
        self(config, worker_type, partition)
    }
}
