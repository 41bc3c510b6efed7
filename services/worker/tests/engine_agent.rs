//! The engine agent's life beside an engine that dies, hangs, changes and comes back, on a cluster in memory.

#[path = "support/engine.rs"]
mod engine;

use axum::http::StatusCode;
use engine::FakeEngine;
use std::time::Duration;
use switchtower_cluster::{
    DistributedRuntime, Subscription,
    memory::{MemoryCluster, MemoryConnection},
};
use switchtower_runtime::{CancellationToken, tasks::AbortOnDrop};
use switchtower_selection::{
    records::WorkerRecord,
    wire::{LOADS, LoadReport, decode},
};
use switchtower_worker::{EngineAgent, EngineAgentConfig, EngineAgentError};
use tokio::sync::oneshot;

/// Longer than anything here takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

const MODEL: &str = "org/model";

/// Quick to look and to give up.
fn quick(engine: &FakeEngine) -> EngineAgentConfig {
    EngineAgentConfig {
        worker_id: 7,
        url: engine.url(),
        model: MODEL.to_owned(),
        check_interval_ms: 20,
        failures_max: 2,
        drain_grace_ms: 0,
        ..EngineAgentConfig::default()
    }
}

/// An agent that runs, and its cluster as somebody else in it sees it.
struct Bench {
    agents: MemoryConnection,
    others: DistributedRuntime,
    stop: CancellationToken,
    ended: oneshot::Receiver<Result<(), EngineAgentError>>,
    /// Dropping it is the agent's crash.
    _task: AbortOnDrop,
}

impl Bench {
    fn start(config: EngineAgentConfig) -> Self {
        Self::join(&MemoryCluster::new("test"), config)
    }

    fn join(cluster: &MemoryCluster, config: EngineAgentConfig) -> Self {
        let (agents, others) = (cluster.connect(), cluster.runtime());
        let runtime = agents.runtime();
        let agent = EngineAgent::build(config, runtime.clone()).unwrap();
        let stop = CancellationToken::new();
        let (end, ended) = oneshot::channel();
        let stopped = stop.clone();
        let task = runtime.tasks().spawn_named("agent", async move {
            drop(end.send(agent.run(&stopped).await));
        });
        Self { agents, others, stop, ended, _task: task.abort_on_drop() }
    }

    async fn record(&self) -> Option<WorkerRecord> {
        let entry = self.others.discovery().get("workers/7").await.unwrap()?;
        Some(WorkerRecord::parse("workers/7", &entry.value).unwrap())
    }

    async fn registered(&self) -> WorkerRecord {
        self.until("registered", |record| record.is_some()).await.unwrap()
    }

    async fn gone(&self) {
        self.until("deregistered", |record| record.is_none()).await;
    }

    async fn until(&self, what: &str, holds: impl Fn(&Option<WorkerRecord>) -> bool) -> Option<WorkerRecord> {
        let waiting = async {
            loop {
                let record = self.record().await;
                if holds(&record) {
                    return record;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never {what}"))
    }

    /// The agent's end after the signal.
    async fn stopped(self) -> Result<(), EngineAgentError> {
        self.stop.cancel();
        self.ended().await
    }

    async fn ended(self) -> Result<(), EngineAgentError> {
        tokio::time::timeout(PATIENCE, self.ended).await.expect("the agent ends").expect("it says how")
    }
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "never: {what}");
}

#[tokio::test]
async fn a_well_engine_is_a_worker_without_events_until_the_agent_is_told_to_stop() {
    let engine = FakeEngine::start(MODEL).await;
    let bench = Bench::start(EngineAgentConfig { ranks: 2, block_size: 32, ..quick(&engine) });
    let record = bench.registered().await;
    assert_eq!((record.endpoint.as_str(), record.model.as_str()), (engine.url().as_str(), MODEL));
    assert_eq!((record.ranks, record.block_size, record.kv_events), (2, 32, false));
    let others = bench.others.clone();
    assert_eq!(bench.stopped().await, Ok(()));
    assert_eq!(others.discovery().get("workers/7").await.unwrap(), None);
}

#[tokio::test]
async fn an_engine_that_dies_is_deregistered_and_comes_back_as_another_life() {
    let engine = FakeEngine::start(MODEL).await;
    let bench = Bench::start(quick(&engine));
    let first = bench.registered().await;
    let dead = engine.kill().await;
    bench.gone().await;
    let engine = dead.restart().await;
    let second = bench.registered().await;
    assert_ne!(first.incarnation, second.incarnation);
    assert_eq!(first.endpoint, second.endpoint);
    drop(engine);
    bench.gone().await;
    assert_eq!(bench.stopped().await, Ok(()), "an engine that is away keeps nobody");
}

#[tokio::test]
async fn an_agent_waits_for_an_engine_that_is_not_there_yet() {
    let engine = FakeEngine::start(MODEL).await;
    let config = quick(&engine);
    let dead = engine.kill().await;
    let bench = Bench::start(config);
    assert_eq!(bench.record().await, None);
    let _engine = dead.restart().await;
    bench.registered().await;
}

#[tokio::test]
async fn a_hang_is_an_absence_and_one_failed_check_is_none() {
    let engine = FakeEngine::start(MODEL).await;
    let config = EngineAgentConfig { check_timeout_ms: 100, failures_max: 5, ..quick(&engine) };
    let bench = Bench::start(config);
    let first = bench.registered().await;

    engine.change(|manners| manners.health = StatusCode::SERVICE_UNAVAILABLE);
    let before = engine.asked("/health");
    eventually("a check that failed", || engine.asked("/health") > before).await;
    engine.change(|manners| manners.health = StatusCode::OK);
    let before = engine.asked("/health");
    eventually("checks that did not", || engine.asked("/health") > before + 3).await;
    assert_eq!(bench.registered().await.incarnation, first.incarnation, "still the same life");

    engine.change(|manners| manners.hangs = true);
    bench.gone().await;
    engine.change(|manners| manners.hangs = false);
    assert_ne!(bench.registered().await.incarnation, first.incarnation);
}

#[tokio::test]
async fn an_engine_without_a_health_path_is_well_if_it_lists_its_models() {
    let engine = FakeEngine::start(MODEL).await;
    engine.change(|manners| manners.health = StatusCode::NOT_FOUND);
    let bench = Bench::start(quick(&engine));
    bench.registered().await;
    let before = engine.asked("/v1/models");
    eventually("more checks", || engine.asked("/v1/models") > before + 3).await;
    assert_eq!(engine.asked("/health"), 1, "it is not asked again for what it has not");
    engine.change(|manners| manners.model = None);
    bench.gone().await;

    let configured = EngineAgentConfig { health_path: Some("/health".to_owned()), ..quick(&engine) };
    engine.change(|manners| manners.model = Some(MODEL.to_owned()));
    let strict = Bench::start(configured);
    let before = engine.asked("/health");
    eventually("checks", || engine.asked("/health") > before + 3).await;
    assert_eq!(strict.record().await, None, "a path that was named is the one that counts");
}

#[tokio::test]
async fn an_engine_without_a_list_of_models_is_taken_at_the_agents_word() {
    let engine = FakeEngine::start(MODEL).await;
    engine.change(|manners| manners.model = None);
    let bench = Bench::start(quick(&engine));
    assert_eq!(bench.registered().await.model, MODEL);
}

#[tokio::test]
async fn an_engine_with_another_model_is_not_registered_and_one_that_changes_leaves_at_once() {
    let engine = FakeEngine::start("another").await;
    let bench = Bench::start(EngineAgentConfig { failures_max: 1_000_000, ..quick(&engine) });
    eventually("checks", || engine.asked("/v1/models") > 2).await;
    assert_eq!(bench.record().await, None);
    engine.change(|manners| manners.model = Some(MODEL.to_owned()));
    bench.registered().await;
    engine.change(|manners| manners.model = Some("another".to_owned()));
    bench.gone().await;
}

fn metrics(running: u32, started_s: u32) -> Option<String> {
    Some(format!(
        "vllm:num_requests_running{{engine=\"0\"}} {running}\nvllm:num_requests_waiting{{engine=\"0\"}} 1\n\
         vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.5\nprocess_start_time_seconds {started_s}\n\
         vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"}} 1\n"
    ))
}

async fn next_report(reports: &mut Subscription) -> LoadReport {
    let message =
        tokio::time::timeout(PATIENCE, reports.next()).await.expect("a report").expect("the bus lives");
    decode(&message.payload).unwrap()
}

#[tokio::test]
async fn what_the_engine_says_of_its_load_is_reported_and_silence_is_not() {
    let engine = FakeEngine::start(MODEL).await;
    let cluster = MemoryCluster::new("test");
    let listener = cluster.runtime();
    let mut reports = listener.bus().subscribe(LOADS).await.unwrap();
    let bench = Bench::join(&cluster, quick(&engine));
    bench.registered().await;
    let before = engine.asked("/health");
    eventually("more checks", || engine.asked("/health") > before + 3).await;
    assert_eq!(engine.asked("/metrics"), 1, "it is not asked again for what it has not");
    assert_eq!(bench.stopped().await, Ok(()));

    engine.change(|manners| manners.metrics = metrics(3, 1_000));
    let bench = Bench::join(&cluster, quick(&engine));
    let record = bench.registered().await;
    assert_eq!(record.total_blocks, Some(100));
    // The first report on this bus: the life before had nothing to say.
    let report = next_report(&mut reports).await;
    assert_eq!((report.worker_id, report.incarnation), (record.worker_id, record.incarnation));
    let load = report.ranks[0];
    assert_eq!((load.running, load.waiting, load.blocks_used, load.blocks_total), (3, 1, 50, 100));
    engine.change(|manners| manners.metrics = metrics(8, 1_000));
    while next_report(&mut reports).await.ranks[0].running != 8 {}
}

#[tokio::test]
async fn a_restart_between_two_checks_is_another_life() {
    let engine = FakeEngine::start(MODEL).await;
    engine.change(|manners| manners.metrics = metrics(0, 1_000));
    let bench = Bench::start(quick(&engine));
    let first = bench.registered().await;
    engine.change(|manners| manners.metrics = metrics(0, 2_000));
    let another = |record: &Option<WorkerRecord>| {
        record.as_ref().is_some_and(|record| record.incarnation != first.incarnation)
    };
    bench.until("another life", another).await;
}

#[tokio::test]
async fn b21_a_stop_says_draining_first_and_goes_after_the_grace() {
    let engine = FakeEngine::start(MODEL).await;
    let bench = Bench::start(EngineAgentConfig { drain_grace_ms: 200, ..quick(&engine) });
    bench.registered().await;
    bench.stop.cancel();
    let draining = |record: &Option<WorkerRecord>| record.as_ref().is_some_and(|record| record.draining);
    bench.until("draining", draining).await;
    bench.gone().await;
    assert_eq!(bench.ended().await, Ok(()));
}

#[tokio::test]
async fn b02_without_a_store_the_agent_goes_on_and_registers_when_there_is_one() {
    let engine = FakeEngine::start(MODEL).await;
    let bench = Bench::start(quick(&engine));
    let record = bench.registered().await;
    bench.agents.vanish();
    bench.gone().await;
    let before = engine.asked("/health");
    eventually("more checks", || engine.asked("/health") > before + 3).await;
    bench.agents.set_reachable(true);
    assert_eq!(bench.registered().await.incarnation, record.incarnation, "the engine's life went on");
}

#[tokio::test]
async fn of_two_agents_of_one_engine_the_later_one_stays() {
    let engine = FakeEngine::start(MODEL).await;
    let cluster = MemoryCluster::new("test");
    let first = Bench::join(&cluster, quick(&engine));
    first.registered().await;
    let second = Bench::join(&cluster, quick(&engine));
    let ended = first.ended().await;
    assert!(ended.unwrap_err().to_string().contains("worker 7"), "it says which");
    second.registered().await;
    assert_eq!(second.stopped().await, Ok(()));
}
