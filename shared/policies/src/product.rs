//! `product`: uncached work times prefill load. It has no weight to tune: the busier a row, the more a cached block on
//! another is worth. Built by the catalogue.

use crate::{cheapest_by, signals};
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerInputs, WorkerScorer, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

/// Uncached work times load. Cost in square tokens: (uncached + 1) × (active prefill + prompt), all in tokens, where
/// uncached = prompt − effective overlap × block size, at least 0.
///
/// Uncached work delays this request and everybody behind it, and the more so the longer the row's backlog; a sum
/// needs a weight for that which no fixed number is at every rate, a product does not. The 1 keeps the load in the
/// cost of a prompt that is cached whole. Decode load is not in the cost.
#[must_use]
pub fn product(
    config: &KvRouterConfig,
    worker_type: &'static str,
    partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    cheapest_by(ProductScorer, config, worker_type, partition)
}

struct ProductScorer;

impl WorkerScorer for ProductScorer {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::CACHE | WorkerInputs::LOAD | WorkerInputs::ROUTING
    }

    fn score(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        let prompt = context.prompt_tokens() as f64;
        let cached = signals::cache(candidate)?.effective() * f64::from(context.block_size());
        let uncached = (prompt - cached).max(0.0);
        let prefill = signals::load(candidate)?.active_prefill_tokens() as f64 + prompt;
        signals::preferred(candidate, (uncached + 1.0) * prefill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{costs, request};
    use switchtower_policy::host::{cache, candidate, load};

    #[test]
    fn a_cost_is_uncached_tokens_times_prefill_tokens() {
        let rows = [
            // Nothing cached, idle: (64 + 1) × 64.
            candidate(1, 0).with_load(load(4.0, 0, 4.0, 0)),
            // Two of four blocks on the device, 100 tokens ahead: (32 + 1) × 164.
            candidate(2, 0).with_load(load(10.25, 100, 4.0, 0)).with_cache(cache(2.0, 0.0, 0.0)),
            // One block on the device, two in host memory that count 0.75 each: 2.5 blocks, (24 + 1) × 64.
            candidate(3, 0).with_cache(cache(1.0, 2.0, 0.0)),
            // One block on the device, two in a shared cache that count half: 2 blocks, (32 + 1) × 64.
            candidate(5, 0).with_cache(cache(1.0, 0.0, 0.0).with_shared(2.0, 0.5)),
            // More cached than asked for, preferred: 1 × 64 × 0.5.
            candidate(4, 0).with_cache(cache(9.0, 0.0, 0.0)).with_preferred_taint_multiplier(0.5),
        ];
        let costs = costs(product, &KvRouterConfig::default(), &request(64), &rows);
        assert_eq!(costs, [4_160.0, 5_412.0, 1_600.0, 2_112.0, 32.0]);
    }
}
