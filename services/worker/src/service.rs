//! What all of a worker's tasks share: its identity, its model, its ranks, its gate. Holds, does not act; used by `api`,
//! `publication` and `worker`.

use crate::{
    SimulatedWorkerConfig,
    faults::FaultSource,
    frames::Frames,
    gate::Gate,
    identity::{new_incarnation, unix_ms},
    prepare::Shape,
    rank::Rank,
    worker::WorkerError,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use switchtower_engine_sim::EngineParameters;
use switchtower_ids::{Incarnation, Rank as RankNumber, WorkerId};
use switchtower_models::Model;
use switchtower_selection::records::{RECORD_VERSION, WorkerRecord};
use tokio::sync::Semaphore;

/// One life of one worker.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) config: SimulatedWorkerConfig,
    pub(crate) model: Arc<Model>,
    pub(crate) incarnation: Incarnation,
    /// In the order of their numbers; never empty.
    pub(crate) ranks: Vec<Arc<Rank>>,
    pub(crate) faults: FaultSource,
    pub(crate) gate: Gate,
    /// Places for preparing requests, which is CPU-bound and, for long answers, takes much memory: one per core.
    pub(crate) desks: Arc<Semaphore>,
    answers: AtomicU64,
}

impl Service {
    /// A new life.
    ///
    /// # Errors
    /// The configuration is wrong.
    pub(crate) fn new(config: SimulatedWorkerConfig, model: Arc<Model>) -> Result<Self, WorkerError> {
        config.validate()?;
        let parameters = EngineParameters { block_size: model.card().block_size, ..config.engine.clone() };
        let rank = |number| {
            Rank::new(RankNumber(number), parameters.clone(), config.speed, config.kept_events).map(Arc::new)
        };
        let ranks =
            (0..config.ranks).map(rank).collect::<Result<_, _>>().map_err(crate::ConfigError::Engine)?;
        Ok(Self {
            incarnation: new_incarnation(),
            ranks,
            faults: FaultSource::new(config.faults.clone(), config.seed),
            gate: Gate::default(),
            desks: Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from))),
            answers: AtomicU64::new(0),
            model,
            config,
        })
    }

    pub(crate) fn worker_id(&self) -> WorkerId {
        WorkerId(self.config.worker_id)
    }

    /// The rank of this number.
    pub(crate) fn rank(&self, number: RankNumber) -> Option<&Arc<Rank>> {
        self.ranks.get(number.0 as usize)
    }

    /// The rank with the fewest requests; the first of equals.
    pub(crate) fn least_loaded(&self) -> Arc<Rank> {
        let requests = |rank: &&Arc<Rank>| {
            let load = rank.load();
            u64::from(load.running) + u64::from(load.waiting)
        };
        let least = self.ranks.iter().min_by_key(requests);
        // There is one: the configuration asks for at least one rank.
        Arc::clone(least.unwrap_or(&self.ranks[0]))
    }

    /// The frames of a new answer.
    pub(crate) fn frames(&self, shape: Shape) -> Frames {
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let prefix = match shape {
            Shape::Chat => "chatcmpl",
            Shape::Text => "cmpl",
        };
        let id = format!("{prefix}-{}-{number:x}", self.incarnation);
        Frames { shape, id, created: unix_ms() / 1_000, model: self.model.card().name.clone() }
    }

    /// The worker's record, reachable at `endpoint`.
    pub(crate) fn record(&self, endpoint: &str, draining: bool) -> WorkerRecord {
        WorkerRecord {
            version: RECORD_VERSION,
            worker_id: self.worker_id(),
            incarnation: self.incarnation,
            endpoint: endpoint.to_owned(),
            model: self.model.card().name.clone(),
            routing_group: self.config.routing_group.clone(),
            stage: self.config.stage,
            ranks: self.config.ranks,
            block_size: self.model.card().block_size,
            total_blocks: Some(u64::from(self.config.engine.total_blocks)),
            max_batch_tokens: Some(u64::from(self.config.engine.prefill_tokens_per_step)),
            taints: self.config.taints.clone(),
            draining,
            kv_events: self.config.kv_events,
        }
    }
}
