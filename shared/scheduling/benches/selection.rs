//! What one decision costs: `cargo bench -p switchtower-scheduling`.
//!
//! A decision is everything that the scheduler does for a request that need not wait: eligibility, overlap from the index,
//! load from the book, the policy, validation. `select` does not book; `reserve_and_free` hashes the prompt, books and
//! releases. Every row has four requests booked, and every fourth row holds half of the prompt that is asked for.
//! One thread, in process, no runtime.

use divan::Bencher;
use std::{num::NonZeroU32, sync::Arc};
use switchtower_ids::{Incarnation, PartitionId, ReplicaId, ReservationKey, Row, SequenceHash, Tier};
use switchtower_kv::{
    event::KvEvent,
    hash::{HashSpace, block_hashes},
    index::{PrefixIndex, RowSlot},
};
use switchtower_policies::{Catalogue, cheapest_by};
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerInputs, WorkerScorer, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError, WorkerSelectionPolicyFactory,
};
use switchtower_scheduling::{
    Answer, Constraints, Request, RowInfo, Scheduler,
    policy_host::{Clock, PolicyParts},
};

const BLOCK_TOKENS: NonZeroU32 = NonZeroU32::new(16).unwrap();
const PROMPT_TOKENS: u32 = 2_048;
const ROWS: [u32; 4] = [64, 256, 1_024, 16_384];
const BOOKED_PER_ROW: u64 = 4;

fn main() {
    divan::main();
}

struct Still;

impl Clock for Still {
    fn now_us(&self) -> u64 {
        0
    }
}

/// A scheduler with work on every row, and the index beside it.
struct World {
    scheduler: Scheduler,
    index: PrefixIndex,
    next_key: u64,
}

fn row_info(row: u32) -> RowInfo {
    RowInfo {
        row: Row::new(row.into(), 0),
        slot: RowSlot(row),
        incarnation: Incarnation(1),
        revision: 1,
        endpoint: "http://127.0.0.1:1".into(),
        taints: Arc::new([]),
        draining: false,
        total_blocks: Some(25_600),
        max_batch_tokens: Some(8_192),
    }
}

/// The `number`th prompt: 2,048 tokens that no other prompt has.
fn tokens(number: u32) -> Vec<u32> {
    (0..PROMPT_TOKENS).map(|position| number.wrapping_mul(PROMPT_TOKENS).wrapping_add(position)).collect()
}

fn blocks(number: u32) -> Arc<[SequenceHash]> {
    block_hashes(&tokens(number), BLOCK_TOKENS, HashSpace::default()).into()
}

impl World {
    fn new(rows: u32, factory: Arc<dyn WorkerSelectionPolicyFactory>) -> Self {
        let parts = PolicyParts {
            config: Arc::new(KvRouterConfig::default()),
            partition: PartitionId::aggregated("model"),
            factory,
            fallback: named("least-loaded"),
            clock: Box::new(Still),
        };
        let mut scheduler = Scheduler::new(BLOCK_TOKENS.get(), parts);
        scheduler.set_rows((0..rows).map(row_info).collect());
        let mut world = Self { scheduler, index: PrefixIndex::default(), next_key: 1 };
        world.book(rows);
        world.cache(rows);
        world
    }

    fn request(&mut self, blocks: Arc<[SequenceHash]>) -> Request {
        let key = ReservationKey { holder: ReplicaId(1), counter: self.next_key };
        self.next_key += 1;
        Request {
            key,
            blocks,
            prompt_tokens: PROMPT_TOKENS.into(),
            expected_output_tokens: None,
            constraints: Constraints::default(),
            priority: 0.0,
            session: None,
            alias: None,
            arrival_ms: 0,
            deadline_ms: None,
        }
    }

    fn book(&mut self, rows: u32) {
        for number in 0..u64::from(rows) * BOOKED_PER_ROW {
            let prompt = u32::try_from(number).unwrap() + 1;
            let request = self.request(blocks(prompt));
            self.submit(request);
        }
    }

    /// Every fourth row holds half of prompt 0.
    fn cache(&mut self, rows: u32) {
        let held = blocks(0)[..64].to_vec();
        for row in (0..rows).step_by(4) {
            let stored = KvEvent::Stored { tier: Tier::Device, parent: None, blocks: held.clone() };
            self.index.apply(RowSlot(row), &stored).unwrap();
        }
    }

    fn submit(&mut self, request: Request) -> Answer {
        self.scheduler.submit(0, request, &self.index).expect("nothing waits without a threshold")
    }
}

fn named(policy: &str) -> Arc<dyn WorkerSelectionPolicyFactory> {
    Catalogue::built_in().get(policy).unwrap()
}

fn select(bencher: Bencher<'_, '_>, rows: u32, factory: Arc<dyn WorkerSelectionPolicyFactory>) {
    let mut world = World::new(rows, factory);
    let request = world.request(blocks(0));
    bencher.bench_local(|| world.scheduler.preview(0, &request, &world.index).unwrap());
}

#[divan::bench(args = ROWS, sample_size = 32)]
fn select_additive(bencher: Bencher<'_, '_>, rows: u32) {
    select(bencher, rows, named("additive"));
}

#[divan::bench(args = ROWS, sample_size = 32)]
fn select_adaptive(bencher: Bencher<'_, '_>, rows: u32) {
    select(bencher, rows, named("adaptive"));
}

#[divan::bench(args = ROWS, sample_size = 32)]
fn select_least_loaded(bencher: Bencher<'_, '_>, rows: u32) {
    select(bencher, rows, named("least-loaded"));
}

/// As a policy's author writes it: one row at a time, load alone.
struct OwnScorer;

impl WorkerScorer for OwnScorer {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::LOAD
    }

    fn score(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        let load = candidate.load().ok_or_else(|| WorkerSelectionPolicyError::failed("no load"))?;
        Ok(load.active_prefill_tokens() as f64 + 64.0 * load.active_requests() as f64)
    }
}

fn own(
    config: &KvRouterConfig,
    stage: &'static str,
    partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    cheapest_by(OwnScorer, config, stage, partition)
}

#[divan::bench(args = ROWS, sample_size = 32)]
fn select_own_load_policy(bencher: Bencher<'_, '_>, rows: u32) {
    select(bencher, rows, Arc::new(own));
}

#[divan::bench(args = ROWS, sample_size = 32)]
fn reserve_and_free(bencher: Bencher<'_, '_>, rows: u32) {
    let mut world = World::new(rows, named("additive"));
    let prompt = tokens(0);
    bencher.counter(divan::counter::ItemsCount::new(1_u32)).bench_local(|| {
        let request = world.request(block_hashes(&prompt, BLOCK_TOKENS, HashSpace::default()).into());
        let key = request.key;
        let answer = world.submit(request);
        world.scheduler.release(0, key, false);
        answer
    });
}
