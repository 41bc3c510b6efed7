//! The peer's selector: its reference policy, or its host for custom ones, on a request whose signals are ready.

use super::{BLOCK_SIZE, BLOCKS, Policy, RowLoad, private_hash};
use crate::{index::TheirIndex, scenario::Prompt};
use anyhow::Context;
use dynamo_kv_router::{
    ActiveSequencesMultiWorker, DefaultWorkerSelector, KvRouterConfig, NoopSequencePublisher,
    SchedulingRequest, SequenceRequest, SyncIndexer, WorkerCandidates, WorkerInputView, WorkerInputs,
    WorkerLoadProjection, WorkerPicker, WorkerScorer, WorkerSelectionContext, WorkerSelectionInput,
    WorkerSelectionPolicy, WorkerSelectionPolicyError, WorkerSelector,
    protocols::{PrefillLoadHint, RoutingConstraints, WorkerConfigLike, WorkerWithDpRank},
    scheduling::{OverlapSignals, ScheduleMode},
};
use std::{
    collections::{HashMap, HashSet},
    hint::black_box,
};
use tokio::time::Instant;

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
    wanted: Prompt,
    index: TheirIndex,
    booked: Booked,
}

/// Who has what booked.
type Booked = ActiveSequencesMultiWorker<NoopSequencePublisher>;

impl TheirSelector {
    pub(super) fn new(policy: Policy, loads: &[RowLoad]) -> anyhow::Result<Self> {
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
        let (wanted, request, booked) = (Prompt::of_seed(1), request(loads), book(loads)?);
        let sequence: Vec<u64> = wanted.sequence.iter().map(|hash| hash.0).collect();
        let projected = booked.project_worker_loads(Some(&sequence), Instant::now());
        anyhow::ensure!(
            projected == request.worker_loads,
            "the peer's projection is not the load that was booked"
        );
        let index = TheirIndex::start(flume::unbounded());
        for row in loads.iter().filter(|row| row.overlap > 0) {
            index.send(wanted.their_event(row.worker, row.overlap))?;
        }
        index.flush()?;
        let request = SchedulingRequest { token_seq: Some(sequence), ..request };
        Ok(Self { selector, workers, request, wanted, index, booked })
    }

    /// The tree's answer, the loads, and the choice; the request's own maps stand in for those made of the first two.
    pub(super) fn select_whole(&self) -> anyhow::Result<u64> {
        black_box(self.index.tree.find_matches(&self.wanted.their_local, false));
        black_box(self.booked.project_worker_loads(self.request.token_seq.as_deref(), Instant::now()));
        self.select()
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

/// The private prompts of every row.
fn book(loads: &[RowLoad]) -> anyhow::Result<Booked> {
    let ranks = loads.iter().map(|row| (row.worker, (0, 1))).collect();
    let booked = Booked::new(NoopSequencePublisher, BLOCK_SIZE as usize, ranks, false, 0, "prefill");
    let mut number = 0;
    for row in loads {
        for _ in 0..row.requests {
            number += 1;
            let hint = PrefillLoadHint {
                initial_effective_prefill_tokens: row.request_blocks as usize * BLOCK_SIZE as usize,
                expected_prefill_duration: None,
            };
            let request = SequenceRequest {
                request_id: number.to_string(),
                token_sequence: Some(
                    (0..row.request_blocks).map(|block| private_hash(number, block)).collect(),
                ),
                track_prefill_tokens: true,
                expected_output_tokens: None,
                prefill_load_hint: Some(hint),
                worker: WorkerWithDpRank::from_worker_id(row.worker),
                lora_name: None,
            };
            booked.add_request(request, Instant::now()).context("the peer books nothing")?;
        }
    }
    Ok(booked)
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
