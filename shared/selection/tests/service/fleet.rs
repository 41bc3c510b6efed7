//! A cluster of scripted workers and a service on it.

use parking_lot::Mutex;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use switchtower_cluster::{DistributedRuntime, Lease};
use switchtower_ids::{Incarnation, Row, SequenceHash, Tier, WorkerId};
use switchtower_kv::{
    event::{EventBatch, KvEvent, SequencedEvent},
    publisher::{Publisher, PublisherLimits},
};
use switchtower_policy::KvRouterConfig;
use switchtower_selection::{
    PartitionLoads, SelectionHandle, SelectionOptions, SelectionRequest, SelectionService,
    SelectionServiceBuilder,
    records::{RECORD_VERSION, WorkerRecord},
    wire::{self, LoadReport, RangeAnswers, RangeRequest, RankLoad},
};

pub(crate) const MODEL: &str = "m";

pub(crate) struct Fleet {
    pub(crate) runtime: DistributedRuntime,
    pub(crate) service: SelectionService,
    pub(crate) handle: SelectionHandle,
}

pub(crate) fn record(worker: u64, incarnation: u64) -> WorkerRecord {
    WorkerRecord {
        version: RECORD_VERSION,
        worker_id: WorkerId(worker),
        incarnation: Incarnation(incarnation),
        endpoint: format!("http://127.0.0.1:{worker}"),
        model: MODEL.to_owned(),
        routing_group: "default".to_owned(),
        stage: switchtower_ids::Stage::Aggregated,
        ranks: 1,
        block_size: 16,
        total_blocks: Some(1_000),
        max_batch_tokens: Some(1_000),
        taints: Default::default(),
        draining: false,
        kv_events: true,
    }
}

/// A prompt of `blocks` full blocks that nobody else has.
pub(crate) fn prompt(seed: u32, blocks: u32) -> Vec<u32> {
    (0..blocks * 16).map(|token| seed * 100_000 + token).collect()
}

pub(crate) fn request(seed: u32, blocks: u32) -> SelectionRequest {
    SelectionRequest::new(MODEL, prompt(seed, blocks))
}

pub(crate) fn hashes(seed: u32, blocks: u32) -> Vec<SequenceHash> {
    let size = std::num::NonZeroU32::new(16).unwrap();
    switchtower_kv::hash::block_hashes(&prompt(seed, blocks), size, Default::default())
}

/// The same prompt as an adapter of the model computes it.
pub(crate) fn hashes_with(lora_name: &str, seed: u32, blocks: u32) -> Vec<SequenceHash> {
    let size = std::num::NonZeroU32::new(16).unwrap();
    let space = switchtower_kv::hash::HashSpace::new(Some(lora_name), None);
    switchtower_kv::hash::block_hashes(&prompt(seed, blocks), size, space)
}

impl Fleet {
    pub(crate) async fn start(config: KvRouterConfig) -> Self {
        Self::with_options(config, SelectionOptions::default()).await
    }

    pub(crate) async fn with_options(config: KvRouterConfig, options: SelectionOptions) -> Self {
        let fleet = Self::join_cluster(DistributedRuntime::in_memory("test"), config, options).await;
        fleet.handle.synced().await;
        fleet
    }

    /// One more replica, which may not have seen anything yet.
    pub(crate) async fn join_cluster(
        runtime: DistributedRuntime,
        config: KvRouterConfig,
        options: SelectionOptions,
    ) -> Self {
        let options = SelectionOptions { tick: Duration::from_millis(10), ..options };
        let builder =
            SelectionServiceBuilder::new(config).distributed_runtime(runtime.clone()).options(options);
        let service = builder.build().await.unwrap();
        let handle = service.handle();
        Self { runtime, service, handle }
    }

    /// Registers a worker in its `incarnation`; it is served when this returns.
    pub(crate) async fn join(&self, record: WorkerRecord) -> Lease {
        let lease = self.runtime.discovery().grant(Duration::from_secs(10)).await.unwrap();
        self.put(&record, &lease).await;
        let worker = record.worker_id;
        self.until(|loads| {
            loads.iter().any(|load| load.rows.iter().any(|row| row.info.row.worker == worker))
        })
        .await;
        lease
    }

    pub(crate) async fn put(&self, record: &WorkerRecord, lease: &Lease) {
        let json = record.to_json().unwrap().into();
        self.runtime.discovery().put(&record.key(), json, Some(lease)).await.unwrap();
    }

    /// Waits until the loads are as they should be.
    pub(crate) async fn until(&self, mut holds: impl FnMut(&[PartitionLoads]) -> bool) {
        let waiting = async {
            while !holds(&self.handle.loads().await) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("the loads never became so");
    }

    pub(crate) async fn until_empty(&self) {
        self.until(|loads| loads.iter().all(|load| load.reservations == 0 && load.waiting == 0)).await;
        for load in self.handle.loads().await {
            assert!(load.rows.iter().all(|row| row.load == Default::default()), "{load:?}");
        }
    }

    /// Waits until what was published so far has been looked at, and checks that the index has nothing of it.
    pub(crate) async fn until_gone(&self) {
        let marker = Log::serve(&self.runtime, 999, 10).await;
        let _lease = self.join(record(1, 999)).await;
        marker.publish(marker.store(5_000, 1)).await;
        self.until_cached(5_000, 1).await;
        self.until(|loads| loads[0].index.pairs == 1).await;
    }

    /// Cached blocks of a prompt on worker 1, all tiers.
    pub(crate) async fn cached(&self, seed: u32, blocks: u32) -> u32 {
        let scores = self.handle.overlap_scores(request(seed, blocks)).await.unwrap();
        let of_first = scores.iter().find(|(row, _)| row.worker == WorkerId(1));
        of_first.map_or(0, |(_, tiers)| tiers.total())
    }

    pub(crate) async fn until_cached(&self, seed: u32, blocks: u32) {
        let waiting = async {
            while self.cached(seed, blocks).await != blocks {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("the blocks never appeared");
    }
}

/// The KV event log of worker 1, rank 0, in one life.
#[derive(Clone)]
pub(crate) struct Log {
    runtime: DistributedRuntime,
    incarnation: Incarnation,
    publisher: Arc<Mutex<Publisher>>,
}

impl Log {
    /// A log that answers range requests.
    pub(crate) async fn serve(runtime: &DistributedRuntime, incarnation: u64, ring_events: usize) -> Self {
        let limits = PublisherLimits { ring_events, ..PublisherLimits::default() };
        let publisher = Arc::new(Mutex::new(Publisher::new(limits)));
        let log = Self { runtime: runtime.clone(), incarnation: Incarnation(incarnation), publisher };
        let subject = wire::range_subject(WorkerId(1), log.incarnation);
        let mut questions = runtime.bus().subscribe(&subject).await.unwrap();
        let answering = log.clone();
        runtime.tasks().spawn_until_shutdown("log", async move {
            let mut answers = RangeAnswers::default();
            while let Some(question) = questions.next().await {
                let request: RangeRequest = wire::decode(&question.payload).unwrap();
                let (limit, now) = (answering.runtime.bus().max_payload(), Instant::now());
                let answer = {
                    let log = answering.publisher.lock();
                    answers.answer(request, (request.rank.0 == 0).then_some(&*log), limit, now)
                };
                question.respond(answer).await.unwrap();
            }
        });
        log
    }

    /// Stores a prompt's blocks without publishing it.
    pub(crate) fn store(&self, seed: u32, blocks: u32) -> Vec<SequencedEvent> {
        self.store_blocks(hashes(seed, blocks))
    }

    pub(crate) fn store_blocks(&self, blocks: Vec<SequenceHash>) -> Vec<SequencedEvent> {
        let stored = KvEvent::Stored { tier: Tier::Device, parent: None, blocks };
        let mut events = Vec::new();
        self.publisher.lock().observe(&stored, &mut events).unwrap();
        events
    }

    pub(crate) fn last_sequence(&self) -> u64 {
        self.publisher.lock().last_seq()
    }

    pub(crate) async fn publish(&self, events: Vec<SequencedEvent>) {
        let batch = EventBatch { row: Row::new(1, 0), incarnation: self.incarnation, events };
        self.runtime.bus().publish(wire::KV_EVENTS, wire::encode(&batch)).await.unwrap();
    }

    pub(crate) async fn report_load(&self, blocks_used: u64) {
        let kv_sequence = self.publisher.lock().last_seq();
        let rank = switchtower_ids::Rank(0);
        let load = RankLoad {
            rank,
            running: 0,
            waiting: 0,
            blocks_used,
            blocks_total: 1_000,
            prefill_tokens: 0,
            kv_sequence,
        };
        let report = LoadReport {
            worker_id: WorkerId(1),
            incarnation: self.incarnation,
            measured_at_ms: 0,
            ranks: vec![load],
        };
        self.runtime.bus().publish(wire::LOADS, wire::encode(&report)).await.unwrap();
    }
}
