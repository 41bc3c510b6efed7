//! `additive`: prefill, decode and requests as one weighted sum of blocks, less a credit for what is cached. The
//! policy with the weights; all of them come from the router's configuration. Built by the catalogue.

use crate::{cheapest_by, signals};
use switchtower_policy::{
    CandidateColumns, Column, KvRouterConfig, LoadColumns, RoutingPartitionRef, WorkerCandidate,
    WorkerInputs, WorkerScorer, WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

/// Weighted sum, in blocks. With raw prefill blocks p, decode cost blocks D and active requests A of a row:
///
/// - cost = `prefill_load_scale` × max(0, p − credit) + D + `decode_active_request_weight` × A
/// - credit = `overlap_score_credit` × decay × device + `host_cache_hit_weight` × host + `disk_cache_hit_weight` ×
///   disk + `shared_cache_multiplier` × shared
/// - decay = 1 / (1 + `overlap_score_credit_decay` × ((P − Pmin) / B) / R), with the row's active prefill tokens P,
///   the least of all rows Pmin, the block size B and the prompt in blocks R (at least 1): a warm row keeps its credit
///   only while its backlog is short, measured in prompts like this one.
#[must_use]
pub fn additive(
    config: &KvRouterConfig,
    worker_type: &'static str,
    partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    cheapest_by(AdditiveScorer::from(config), config, worker_type, partition)
}

/// The weights, named as in the configuration.
struct AdditiveScorer {
    overlap_score_credit: f64,
    overlap_score_credit_decay: f64,
    host_cache_hit_weight: f64,
    disk_cache_hit_weight: f64,
    shared_cache_multiplier: f64,
    prefill_load_scale: f64,
    decode_active_request_weight: f64,
}

impl From<&KvRouterConfig> for AdditiveScorer {
    fn from(config: &KvRouterConfig) -> Self {
        Self {
            overlap_score_credit: config.overlap_score_credit,
            overlap_score_credit_decay: config.overlap_score_credit_decay,
            host_cache_hit_weight: config.host_cache_hit_weight,
            disk_cache_hit_weight: config.disk_cache_hit_weight,
            shared_cache_multiplier: config.shared_cache_multiplier,
            prefill_load_scale: config.prefill_load_scale,
            decode_active_request_weight: config.decode_active_request_weight,
        }
    }
}

impl WorkerScorer for AdditiveScorer {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::CACHE | WorkerInputs::LOAD | WorkerInputs::ROUTING
    }

    /// One row by itself is the least loaded of its rows: no decay.
    fn score(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        self.cost(candidate, 1.0)
    }

    fn score_batch(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        rows: &CandidateColumns<'_>,
        costs: &mut [f64],
    ) -> Result<(), WorkerSelectionPolicyError> {
        let decay = Decay::over(self.overlap_score_credit_decay, context, signals::loads(rows)?);
        if decay.is_none()
            && let Some(plain) = Plain::of(rows)?
        {
            self.fill(&plain, costs);
            return Ok(());
        }
        for (candidate, cost) in rows.iter().zip(costs) {
            let decay = decay.as_ref().map_or(1.0, |decay| decay.of(&candidate));
            *cost = self.cost(&candidate, decay)?;
        }
        Ok(())
    }
}

/// The signals of rows that hold blocks on the device only and among which none is preferred: nearly every decision's.
struct Plain<'a> {
    load: &'a LoadColumns<'a>,
    device: &'a [f64],
}

impl<'a> Plain<'a> {
    fn of(rows: &'a CandidateColumns<'_>) -> Result<Option<Self>, WorkerSelectionPolicyError> {
        let (load, cache) = (signals::loads(rows)?, signals::caches(rows)?);
        let are_plain = [cache.host, cache.disk, cache.shared].iter().all(|tier| *tier == Column::Same(0.0))
            && signals::multipliers(rows)? == Column::Same(1.0);
        Ok(are_plain.then_some(Self { load, device: cache.device }))
    }
}

impl AdditiveScorer {
    fn cost(&self, candidate: &WorkerCandidate, decay: f64) -> Result<f64, WorkerSelectionPolicyError> {
        let (load, cache) = (signals::load(candidate)?, signals::cache(candidate)?);
        let slow_tiers = [cache.host(), cache.disk(), cache.shared()];
        let credit = self.credit(decay, cache.device(), slow_tiers);
        let prefill = self.prefill(load.raw_prefill_blocks(), credit);
        let requests = self.decode_active_request_weight * load.active_requests() as f64;
        signals::preferred(candidate, prefill + load.decode_cost_blocks() + requests)
    }

    /// The costs of plain rows: the same arithmetic without what adds 0 or multiplies by 1, column by column.
    fn fill(&self, plain: &Plain<'_>, costs: &mut [f64]) {
        let requests = &plain.load.active_requests[..costs.len()];
        if self.decode_active_request_weight == 0.0 {
            self.fill_with(|_, blocks| blocks, plain, costs);
        } else {
            let weight = self.decode_active_request_weight;
            self.fill_with(|row, blocks| blocks + weight * requests[row] as f64, plain, costs);
        }
    }

    // The slices are of one length that the compiler knows, so that it can take several rows at a time.
    #[inline(always)]
    fn fill_with(&self, with_requests: impl Fn(usize, f64) -> f64, plain: &Plain<'_>, costs: &mut [f64]) {
        let (load, rows) = (plain.load, costs.len());
        let (raw, decode) = (&load.raw_prefill_blocks[..rows], &load.decode_cost_blocks[..rows]);
        let device = &plain.device[..rows];
        for (row, cost) in costs.iter_mut().enumerate() {
            let prefill = self.prefill(raw[row], self.overlap_score_credit * device[row]);
            // No addend is negative, so the sum can be too large only.
            let sum = with_requests(row, prefill + decode[row]);
            *cost = if sum > f64::MAX { f64::MAX } else { sum };
        }
    }

    #[inline(always)]
    fn prefill(&self, raw_prefill_blocks: f64, credit: f64) -> f64 {
        self.prefill_load_scale * (raw_prefill_blocks - credit).max(0.0)
    }

    fn credit(&self, decay: f64, device: f64, [host, disk, shared]: [f64; 3]) -> f64 {
        self.overlap_score_credit * decay * device
            + self.host_cache_hit_weight * host
            + self.disk_cache_hit_weight * disk
            + self.shared_cache_multiplier * shared
    }
}

/// How the device credit fades with a row's backlog beyond the least loaded row's.
struct Decay {
    /// Per token of backlog.
    rate: f64,
    least_prefill_tokens: u64,
}

impl Decay {
    /// None where nothing decays, which needs no look at the rows.
    fn over(rate: f64, context: &WorkerSelectionContext<'_>, load: &LoadColumns<'_>) -> Option<Self> {
        if rate == 0.0 {
            return None;
        }
        let least = load.active_prefill_tokens.iter().min().copied().unwrap_or(0);
        let prompt_tokens = f64::from(context.block_size()) * context.request_blocks().max(1) as f64;
        Some(Self { rate: rate / prompt_tokens, least_prefill_tokens: least })
    }

    fn of(&self, candidate: &WorkerCandidate) -> f64 {
        let backlog = candidate.load().map_or(0, |load| load.active_prefill_tokens());
        1.0 / (1.0 + self.rate * backlog.saturating_sub(self.least_prefill_tokens) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{costs, request};
    use switchtower_policy::host::{cache, candidate, load};

    #[test]
    fn with_the_defaults_a_cost_is_uncached_prefill_plus_decode() {
        let rows = [
            candidate(1, 0).with_load(load(10.0, 96, 7.0, 2)),
            // 10 − (2 + 0.75 × 4 + 0.25 × 2) + 7.
            candidate(2, 0).with_load(load(10.0, 96, 7.0, 2)).with_cache(cache(2.0, 4.0, 2.0)),
            // The credit exceeds the work: only decode is left. Preferred: half of it.
            candidate(3, 0).with_load(load(4.0, 0, 7.0, 2)).with_cache(cache(9.0, 0.0, 0.0)),
            candidate(4, 0).with_load(load(4.0, 0, 6.0, 2)).with_preferred_taint_multiplier(0.5),
        ];
        let costs = costs(additive, &KvRouterConfig::default(), &request(64), &rows);
        assert_eq!(costs, [17.0, 11.5, 7.0, 5.0]);
    }

    #[test]
    fn every_weight_is_the_configured_one() {
        let config = KvRouterConfig {
            overlap_score_credit: 2.0,
            host_cache_hit_weight: 0.5,
            disk_cache_hit_weight: 0.125,
            shared_cache_multiplier: 0.25,
            prefill_load_scale: 4.0,
            decode_active_request_weight: 64.0,
            ..KvRouterConfig::default()
        };
        let overlap = cache(3.0, 4.0, 8.0).with_shared(4.0, 0.25);
        let rows = [candidate(1, 0).with_load(load(20.0, 0, 5.0, 3)).with_cache(overlap)];
        // Credit 2 × 3 + 0.5 × 4 + 0.125 × 8 + 0.25 × 4 = 10; cost 4 × (20 − 10) + 5 + 64 × 3.
        assert_eq!(costs(additive, &config, &request(64), &rows), [237.0]);
    }

    #[test]
    fn device_credit_decays_with_the_backlog_beyond_the_shortest() {
        let config = KvRouterConfig { overlap_score_credit_decay: 0.5, ..KvRouterConfig::default() };
        let rows = [
            candidate(1, 0).with_load(load(14.0, 160, 0.0, 0)).with_cache(cache(4.0, 0.0, 0.0)),
            // 128 tokens more than the shortest are 8 blocks, two prompts of 4: decay 1 / (1 + 0.5 × 2) on the device
            // credit alone, 22 − (0.5 × 4 + 0.75 × 4).
            candidate(2, 0).with_load(load(22.0, 288, 0.0, 0)).with_cache(cache(4.0, 4.0, 0.0)),
        ];
        assert_eq!(costs(additive, &config, &request(64), &rows), [10.0, 17.0]);
    }

    #[test]
    fn b81_an_empty_prompt_decays_like_one_block() {
        let config = KvRouterConfig { overlap_score_credit_decay: 1.0, ..KvRouterConfig::default() };
        let rows = [
            candidate(1, 0),
            candidate(2, 0).with_load(load(1.0, 16, 0.0, 0)).with_cache(cache(1.0, 0.0, 0.0)),
        ];
        assert_eq!(costs(additive, &config, &request(0), &rows), [0.0, 0.5]);
    }
}
