//! A policy with every fault that the host promises to survive.

use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerInputs, WorkerScorer, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

/// Scores by load, and fails now and then. Seldom enough in a row that it is not always in quarantine.
struct Unreliable {
    calls: u64,
}

impl WorkerScorer for Unreliable {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::LOAD
    }

    fn score(
        &mut self,
        _: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        self.calls += 1;
        match self.calls % 100 {
            20 => Err(WorkerSelectionPolicyError::failed("lost the thread")),
            50 => Ok(f64::NAN),
            80 => panic!("a policy that panics"),
            _ => Ok(candidate.load().map_or(0.0, |load| load.active_requests() as f64)),
        }
    }
}

/// Builds the policy.
pub(crate) fn unreliable(
    config: &KvRouterConfig,
    worker_type: &'static str,
    partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    switchtower_policies::cheapest_by(Unreliable { calls: 0 }, config, worker_type, partition)
}
