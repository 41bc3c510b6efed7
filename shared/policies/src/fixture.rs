//! What the tests of this crate share: a request, a host that decides once, costs that are given.

use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerScorer, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError, WorkerSelectionPolicyFactory, host,
};

/// A request of `prompt_tokens` in blocks of 16.
pub(crate) fn request(prompt_tokens: u64) -> WorkerSelectionContext<'static> {
    host::ContextBuilder::new(prompt_tokens, 16).build()
}

/// One decision over `rows`.
pub(crate) fn decide(
    policy: &mut WorkerSelectionPolicy,
    context: &WorkerSelectionContext<'_>,
    rows: &[WorkerCandidate],
) -> Result<host::Pick, WorkerSelectionPolicyError> {
    host::evaluate(policy, context, &mut rows.to_vec(), &mut host::Scratch::default())
}

/// The place among `rows` of the row that `policy` picks.
pub(crate) fn picked(
    policy: &mut WorkerSelectionPolicy,
    context: &WorkerSelectionContext<'_>,
    rows: &[WorkerCandidate],
) -> usize {
    let pick = decide(policy, context, rows).unwrap();
    rows.iter().position(|row| (row.worker_id(), row.dp_rank()) == (pick.worker_id, pick.dp_rank)).unwrap()
}

/// The cost that a fresh policy of `factory` gives each of `rows`.
pub(crate) fn costs(
    factory: impl WorkerSelectionPolicyFactory,
    config: &KvRouterConfig,
    context: &WorkerSelectionContext<'_>,
    rows: &[WorkerCandidate],
) -> Vec<f64> {
    let mut policy = factory.build(config, "aggregated", RoutingPartitionRef::new("model", "default"));
    let mut scratch = host::Scratch::default();
    host::evaluate(&mut policy, context, &mut rows.to_vec(), &mut scratch).unwrap();
    scratch.costs().to_vec()
}

/// The rows that `policy` picks in `draws` decisions over `rows` rows without any signal.
pub(crate) fn picks_of(
    mut policy: WorkerSelectionPolicy,
    rows: usize,
    draws: usize,
) -> impl Iterator<Item = usize> {
    let rows: Vec<_> = (0_u64..).take(rows).map(|worker| host::candidate(worker, 0)).collect();
    (0..draws).map(move |_| picked(&mut policy, &request(64), &rows))
}

/// Gives worker n the n-th cost.
pub(crate) struct FixedCosts(pub(crate) Vec<f64>);

impl WorkerScorer for FixedCosts {
    fn score(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        Ok(self.0[candidate.worker_id() as usize])
    }
}
