//! `active-requests`: the row with the fewest requests. The simplest policy that balances; blind to the cache and to
//! how much work a request is. Built by the catalogue.

use crate::{cheapest_by, signals};
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerInputs, WorkerScorer, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

/// Fewest active requests. Cost: active requests + 1 (this one), so that preferred taints count on idle rows too.
#[must_use]
pub fn active_requests(
    config: &KvRouterConfig,
    worker_type: &'static str,
    partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    cheapest_by(ActiveRequestScorer, config, worker_type, partition)
}

struct ActiveRequestScorer;

impl WorkerScorer for ActiveRequestScorer {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::LOAD | WorkerInputs::ROUTING
    }

    fn score(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        let requests = signals::load(candidate)?.active_requests();
        signals::preferred(candidate, requests as f64 + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{costs, request};
    use switchtower_policy::host::{candidate, load};

    #[test]
    fn a_cost_is_the_number_of_requests_with_this_one() {
        let rows = [
            candidate(1, 0).with_load(load(9.0, 9, 9.0, 3)),
            candidate(2, 0).with_load(load(1.0, 1, 1.0, 7)),
            candidate(3, 0).with_load(load(0.0, 0, 0.0, 3)).with_preferred_taint_multiplier(0.5),
            candidate(4, 0),
        ];
        let costs = costs(active_requests, &KvRouterConfig::default(), &request(64), &rows);
        assert_eq!(costs, [4.0, 8.0, 2.0, 1.0]);
    }
}
