//! The peer's selector: its reference policy, or its host for custom ones, on a request whose signals are ready.

use super::{BLOCK_SIZE, BLOCKS, Policy, RowLoad};
use anyhow::Context;
use dynamo_kv_router::{
    DefaultWorkerSelector, KvRouterConfig, SchedulingRequest, WorkerCandidates, WorkerInputView,
    WorkerInputs, WorkerLoadProjection, WorkerPicker, WorkerScorer, WorkerSelectionContext,
    WorkerSelectionInput, WorkerSelectionPolicy, WorkerSelectionPolicyError, WorkerSelector,
    protocols::{RoutingConstraints, WorkerConfigLike, WorkerWithDpRank},
    scheduling::{OverlapSignals, ScheduleMode},
};
use std::collections::{HashMap, HashSet};

/// A worker of one rank without taints.
#[derive(Default)]
struct Worker {
    taints: HashSet<String>,
}

impl WorkerConfigLike for Worker {
    fn data_parallel_start_rank(&self) -> u32 {
        0
    }

    fn data_parallel_size(&self) -> u32 {
        1
    }

    fn max_num_batched_tokens(&self) -> Option<u64> {
        Some(8_192)
    }

    fn total_kv_blocks(&self) -> Option<u64> {
        Some(100_000)
    }

    fn taints(&self) -> &HashSet<String> {
        &self.taints
    }
}

enum Selector {
    Default(Box<DefaultWorkerSelector>),
    Custom(Box<WorkerSelectionPolicy>),
}

pub(super) struct TheirSelector {
    selector: Selector,
    workers: HashMap<u64, Worker>,
    request: SchedulingRequest,
}

impl TheirSelector {
    pub(super) fn new(policy: Policy, loads: &[RowLoad]) -> Self {
        let config = KvRouterConfig { router_temperature: 0.0, ..KvRouterConfig::default() };
        // Their label of a pool whose cost counts prefill and decode.
        let label = "prefill";
        let selector = match policy {
            Policy::Default => Selector::Default(Box::new(DefaultWorkerSelector::new(Some(config), label))),
            Policy::Load => {
                let scorers: Vec<Box<dyn WorkerScorer>> = vec![Box::new(Load)];
                Selector::Custom(Box::new(WorkerSelectionPolicy::new(
                    config,
                    label,
                    scorers,
                    Box::new(Cheapest),
                )))
            }
        };
        let workers = loads.iter().map(|row| (row.worker, Worker::default())).collect();
        Self { selector, workers, request: request(loads) }
    }

    pub(super) fn select(&self) -> anyhow::Result<u64> {
        let eligible = self.request.eligibility();
        let input = WorkerSelectionInput::configured(&self.workers, &self.request, eligible, BLOCK_SIZE);
        let selected = match &self.selector {
            Selector::Default(selector) => selector.select_worker(input),
            Selector::Custom(policy) => policy.select_worker(input),
        };
        Ok(selected.context("the peer chooses nobody")?.worker.worker_id)
    }
}

/// The request with its signals, in the maps that their scheduler fills before it selects.
fn request(loads: &[RowLoad]) -> SchedulingRequest {
    let tokens_per_block = BLOCK_SIZE as usize;
    let of = |row: &RowLoad| WorkerWithDpRank::from_worker_id(row.worker);
    let held = || loads.iter().filter(|row| row.overlap > 0);
    let overlap = OverlapSignals {
        tier_overlap_blocks: Default::default(),
        effective_overlap_blocks: held().map(|row| (of(row), row.overlap as f64)).collect(),
        effective_cached_tokens: held().map(|row| (of(row), row.overlap * tokens_per_block)).collect(),
    };
    let worker_loads = loads.iter().map(|row| {
        let blocks = (row.requests * row.request_blocks) as usize;
        let load = WorkerLoadProjection {
            active_prefill_tokens: blocks * tokens_per_block,
            active_decode_blocks: blocks,
            active_requests: row.requests as usize,
            additional_active_blocks: BLOCKS,
        };
        (of(row), load)
    });
    SchedulingRequest {
        mode: ScheduleMode::QueryOnly { request_id: None },
        token_seq: None,
        isl_tokens: BLOCKS * tokens_per_block,
        lora_name: None,
        expected_output_tokens: None,
        affinity_target: None,
        pinned_worker: None,
        allowed_worker_ids: None,
        routing_constraints: RoutingConstraints::default(),
        router_config_override: None,
        track_prefill_tokens: true,
        priority_jump: 0.0,
        strict_priority: 0,
        policy_class: None,
        session_context: None,
        overlap,
        kv_transfer_candidates: None,
        retain_kv_transfer_chain: false,
        shared_cache_hits: None,
        worker_loads: worker_loads.collect(),
        resp_tx: None,
    }
}

/// The custom policy's cost.
struct Load;

impl WorkerScorer for Load {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::LOAD
    }

    fn score(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        candidates: WorkerCandidates<'_>,
        costs: &mut [f64],
    ) -> Result<(), WorkerSelectionPolicyError> {
        for (candidate, cost) in candidates.iter().zip(costs) {
            let load = candidate.load().ok_or_else(|| WorkerSelectionPolicyError::failed("no load"))?;
            *cost = load.active_prefill_tokens() as f64 / f64::from(context.block_size())
                + load.decode_cost_blocks()
                + load.active_requests() as f64;
        }
        Ok(())
    }
}

struct Cheapest;

impl WorkerPicker for Cheapest {
    fn pick(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        let rows = input.candidates().iter().enumerate();
        rows.min_by(|(_, a), (_, b)| a.cost().total_cmp(&b.cost()))
            .map(|(row, _)| row)
            .ok_or_else(|| WorkerSelectionPolicyError::failed("no rows"))
    }
}
