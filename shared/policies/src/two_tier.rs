//! `two-tier`: follow the cache while that is worth it and the fleet is balanced, the number of requests otherwise. A
//! threshold instead of a weight. Built by the catalogue.

use crate::{cheapest_by, signals};
use switchtower_policy::{
    CandidateColumns, KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerInputs, WorkerScorer,
    WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError, WorkerSelectionPolicyFactory,
};

/// Two tiers of rows. With the active requests A of a row, their extremes Amin and Amax, the device overlap d and its
/// maximum dmax, and the prompt in blocks R (at least 1):
///
/// 1. The fleet is out of balance: Amax − Amin > `balance_abs_threshold` and Amax > `balance_rel_threshold` × Amin. All
///    rows are in the first tier.
/// 2. Otherwise the overlap is worth it: dmax ÷ R > `cache_threshold`. The rows with d = dmax are in the first tier, all
///    others in the second.
/// 3. Otherwise all rows are in the first tier.
///
/// Cost: (A + 1) × preferred-taint multiplier, and 2 × (Amax + 1) more in the second tier, so that it costs more than
/// any row of the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoTier {
    /// Share of the prompt that must be cached on the device of some row for the cache to decide; 0.5 by default.
    pub cache_threshold: f64,
    /// Difference of active requests beyond which the fleet may be out of balance; 32 by default.
    pub balance_abs_threshold: u64,
    /// Ratio of active requests beyond which it is, then; 1.1 by default.
    pub balance_rel_threshold: f64,
}

impl Default for TwoTier {
    fn default() -> Self {
        Self { cache_threshold: 0.5, balance_abs_threshold: 32, balance_rel_threshold: 1.1 }
    }
}

impl WorkerSelectionPolicyFactory for TwoTier {
    fn build(
        &self,
        config: &KvRouterConfig,
        worker_type: &'static str,
        partition: RoutingPartitionRef<'_>,
    ) -> WorkerSelectionPolicy {
        cheapest_by(TwoTierScorer(*self), config, worker_type, partition)
    }
}

struct TwoTierScorer(TwoTier);

/// What decides between the tiers, over all rows.
struct Extremes {
    least_requests: u64,
    most_requests: u64,
    most_device_blocks: f64,
}

impl Extremes {
    fn of(rows: &CandidateColumns<'_>) -> Result<Self, WorkerSelectionPolicyError> {
        let requests = || signals::loads(rows).map(|load| load.active_requests.iter().copied());
        let device = signals::caches(rows)?.device.iter().copied();
        Ok(Self {
            least_requests: requests()?.min().unwrap_or(u64::MAX),
            most_requests: requests()?.max().unwrap_or(0),
            most_device_blocks: device.fold(0.0, f64::max),
        })
    }
}

impl TwoTierScorer {
    /// The device blocks that a row of the first tier has at least.
    fn first_tier_blocks(&self, context: &WorkerSelectionContext<'_>, extremes: &Extremes) -> f64 {
        let Extremes { least_requests, most_requests, most_device_blocks } = *extremes;
        let out_of_balance = most_requests.saturating_sub(least_requests) > self.0.balance_abs_threshold
            && most_requests as f64 > self.0.balance_rel_threshold * least_requests as f64;
        let cached = most_device_blocks / context.request_blocks().max(1) as f64;
        if !out_of_balance && cached > self.0.cache_threshold { most_device_blocks } else { 0.0 }
    }
}

impl WorkerScorer for TwoTierScorer {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::CACHE | WorkerInputs::LOAD | WorkerInputs::ROUTING
    }

    /// One row by itself is in the first tier.
    fn score(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        signals::preferred(candidate, signals::load(candidate)?.active_requests() as f64 + 1.0)
    }

    fn score_batch(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        rows: &CandidateColumns<'_>,
        costs: &mut [f64],
    ) -> Result<(), WorkerSelectionPolicyError> {
        let extremes = Extremes::of(rows)?;
        let least_blocks = self.first_tier_blocks(context, &extremes);
        let distance = 2.0 * (extremes.most_requests as f64 + 1.0);
        for (candidate, cost) in rows.iter().zip(costs) {
            let in_second_tier = signals::cache(&candidate)?.device() < least_blocks;
            *cost = self.score(context, &candidate)? + if in_second_tier { distance } else { 0.0 };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{costs, request};
    use switchtower_policy::host::{cache, candidate, load};

    /// A row with this many requests and blocks on the device.
    fn row(worker: u64, requests: u64, device: f64) -> WorkerCandidate {
        candidate(worker, 0).with_load(load(9.0, 9, 9.0, requests)).with_cache(cache(device, 3.0, 0.0))
    }

    /// Costs for a prompt of four blocks.
    fn of(rows: &[WorkerCandidate]) -> Vec<f64> {
        costs(TwoTier::default(), &KvRouterConfig::default(), &request(64), rows)
    }

    #[test]
    fn rows_with_the_longest_overlap_come_first_when_it_is_more_than_half() {
        // Second tier: 2 × (32 + 1) more. The rows that share the longest overlap are told apart by their requests.
        assert_eq!(of(&[row(1, 0, 2.0), row(2, 32, 3.0), row(3, 4, 3.0)]), [67.0, 33.0, 5.0]);
        let preferred = row(4, 5, 3.0).with_preferred_taint_multiplier(0.5);
        assert_eq!(of(&[row(1, 0, 2.0), row(3, 4, 3.0), preferred]), [13.0, 5.0, 3.0]);
    }

    #[test]
    fn half_the_prompt_is_not_enough() {
        assert_eq!(of(&[row(1, 0, 0.0), row(2, 7, 2.0)]), [1.0, 8.0]);
    }

    #[test]
    fn out_of_balance_needs_both_thresholds() {
        assert_eq!(of(&[row(1, 0, 0.0), row(2, 33, 4.0)]), [1.0, 34.0], "33 > 32 and 33 > 0");
        // 440 − 400 > 32, but 440 is not more than 1.1 × 400: the cache decides.
        assert_eq!(of(&[row(1, 400, 0.0), row(2, 440, 4.0)]), [401.0 + 882.0, 441.0]);
        assert_eq!(of(&[row(1, 400, 0.0), row(2, 441, 4.0)]), [401.0, 442.0]);
    }

    #[test]
    fn b81_an_empty_prompt_counts_as_one_block() {
        let rows = [row(1, 0, 0.0), row(2, 1, 1.0)];
        let costs = costs(TwoTier::default(), &KvRouterConfig::default(), &request(0), &rows);
        assert_eq!(costs, [1.0 + 4.0, 2.0]);
    }
}
