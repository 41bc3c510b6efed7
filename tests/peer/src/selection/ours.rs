//! Our scheduler with a fleet whose rows hold a prefix of the prompt and have other prompts booked.

use super::{BLOCK_SIZE, Policy, RowLoad, private_hash};
use crate::scenario::Prompt;
use anyhow::Context;
use std::{sync::Arc, time::Instant};
use switchtower_ids::{
    Incarnation, PartitionId, ReplicaId, ReservationKey, Row, SequenceHash, Tier, WorkerId,
};
use switchtower_kv::{
    event::KvEvent,
    index::{IndexLimits, Overlap, PrefixIndex, RowSlot},
};
use switchtower_policies::Catalogue;
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerInputView, WorkerInputs, WorkerPicker,
    WorkerScorer, WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError,
    WorkerSelectionPolicyFactory,
};
use switchtower_scheduling::{
    Constraints, OverlapIndex, Pin, Request, RowInfo, Scheduler,
    policy_host::{Clock, PolicyParts},
};

pub(super) struct OurScheduler {
    scheduler: Scheduler,
    index: PrefixIndex,
    ready: Ready,
    request: Request,
}

/// The index's answer, which is where the scheduler reads it from the second selection on.
struct Ready(Overlap);

impl OverlapIndex for Ready {
    fn overlap(&self, _blocks: &[SequenceHash], overlap: &mut Overlap) {
        if overlap.touched().len() != self.0.touched().len() {
            overlap.clone_from(&self.0);
        }
    }
}

impl OurScheduler {
    pub(super) fn new(policy: Policy, loads: &[RowLoad]) -> anyhow::Result<Self> {
        let catalogue = Catalogue::built_in();
        let config = Arc::new(KvRouterConfig { seed: 1, ..KvRouterConfig::default() });
        let mut scheduler = Scheduler::new(
            BLOCK_SIZE,
            PolicyParts {
                partition: PartitionId::aggregated("model"),
                factory: match policy {
                    Policy::Default => catalogue.get("additive")?,
                    Policy::Load => Arc::new(load_policy) as Arc<dyn WorkerSelectionPolicyFactory>,
                },
                fallback: catalogue.get(&config.fallback_policy)?,
                config,
                clock: Box::new(WallClock(Instant::now())),
            },
        );
        scheduler.set_rows(loads.iter().map(info).collect());
        let wanted = Prompt::of_seed(1);
        let mut index = PrefixIndex::new(IndexLimits::default());
        for row in loads.iter().filter(|row| row.overlap > 0) {
            let blocks = wanted.sequence[..row.overlap].to_vec();
            index.apply(slot(row), &KvEvent::Stored { tier: Tier::Device, parent: None, blocks })?;
        }
        let mut overlap = Overlap::new();
        index.overlap(&wanted.sequence, &mut overlap);
        let request = request(0, wanted.sequence.into(), None);
        let mut ours = Self { scheduler, index, ready: Ready(overlap), request };
        ours.book(loads)?;
        Ok(ours)
    }

    /// Prompts that nobody has cached, pinned to their rows.
    fn book(&mut self, loads: &[RowLoad]) -> anyhow::Result<()> {
        let mut counter = 0;
        for row in loads {
            for _ in 0..row.requests {
                counter += 1;
                let blocks = (0..row.request_blocks).map(|block| SequenceHash(private_hash(counter, block)));
                let request = request(counter, blocks.collect(), Some(row.worker));
                let answer = self.scheduler.submit(0, request, &self.index);
                answer.context("a request waits")?.result?;
            }
        }
        Ok(())
    }

    /// With the overlap ready.
    pub(super) fn select(&mut self) -> anyhow::Result<u64> {
        let selection = self.scheduler.preview(0, &self.request, &self.ready)?;
        Ok(selection.row.worker.0)
    }

    /// With the overlap asked of the index.
    pub(super) fn select_whole(&mut self) -> anyhow::Result<u64> {
        let selection = self.scheduler.preview(0, &self.request, &self.index)?;
        Ok(selection.row.worker.0)
    }
}

fn slot(row: &RowLoad) -> RowSlot {
    RowSlot(row.worker as u32 - 1)
}

fn info(row: &RowLoad) -> RowInfo {
    RowInfo {
        row: Row::new(row.worker, 0),
        slot: slot(row),
        incarnation: Incarnation(1),
        revision: 1,
        endpoint: "http://127.0.0.1:1".into(),
        taints: Arc::new([]),
        draining: false,
        total_blocks: Some(100_000),
        max_batch_tokens: Some(8_192),
    }
}

fn request(counter: u64, blocks: Arc<[SequenceHash]>, worker: Option<u64>) -> Request {
    let pin = worker.map(|worker| Pin { worker: WorkerId(worker), rank: None });
    Request {
        key: ReservationKey { holder: ReplicaId(1), counter },
        prompt_tokens: blocks.len() as u64 * u64::from(BLOCK_SIZE),
        blocks,
        expected_output_tokens: None,
        constraints: Constraints { pin, ..Constraints::default() },
        priority: 0.0,
        session: None,
        alias: None,
        arrival_ms: 0,
        deadline_ms: None,
    }
}

/// Read around every policy's call, as in the service.
struct WallClock(Instant);

impl Clock for WallClock {
    fn now_us(&self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }
}

fn load_policy(
    config: &KvRouterConfig,
    worker_type: &'static str,
    _partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    WorkerSelectionPolicy::new(config.clone(), worker_type, vec![Box::new(Load)], Box::new(Cheapest))
}

/// The custom policy's cost, one row at a time.
struct Load;

impl WorkerScorer for Load {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::LOAD
    }

    fn score(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        let load = candidate.load().ok_or_else(|| WorkerSelectionPolicyError::failed("no load"))?;
        Ok(load.active_prefill_tokens() as f64 / f64::from(context.block_size())
            + load.decode_cost_blocks()
            + load.active_requests() as f64)
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
