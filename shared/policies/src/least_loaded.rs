//! `least-loaded`: the row with the least booked work, blind to the cache. The fallback when a policy fails, so it
//! must not fail itself. Built by the catalogue.

use crate::{cheapest_by, signals};
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerInputs, WorkerScorer, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

/// Least booked work. Cost in blocks: raw prefill blocks + decode cost blocks, this request included in both.
///
/// Unlike `active-requests` it knows a long prompt from a short one.
#[must_use]
pub fn least_loaded(
    config: &KvRouterConfig,
    worker_type: &'static str,
    partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    cheapest_by(BookedBlocksScorer, config, worker_type, partition)
}

/// Shared with the policies that fall back on the least booked work.
pub(crate) struct BookedBlocksScorer;

impl WorkerScorer for BookedBlocksScorer {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::LOAD | WorkerInputs::ROUTING
    }

    fn score(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        let load = signals::load(candidate)?;
        signals::preferred(candidate, load.raw_prefill_blocks() + load.decode_cost_blocks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{costs, request};
    use switchtower_policy::host::{cache, candidate, load};

    #[test]
    fn a_cost_is_the_sum_of_prefill_and_decode_blocks() {
        let rows = [
            candidate(1, 0).with_load(load(4.5, 8, 10.0, 900)),
            candidate(2, 0).with_load(load(4.0, 0, 4.0, 1)).with_cache(cache(4.0, 0.0, 0.0)),
            candidate(3, 0).with_load(load(4.0, 0, 6.0, 1)).with_preferred_taint_multiplier(0.25),
        ];
        let costs = costs(least_loaded, &KvRouterConfig::default(), &request(64), &rows);
        assert_eq!(costs, [14.5, 8.0, 2.5]);
    }
}
