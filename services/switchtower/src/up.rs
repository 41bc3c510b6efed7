//! `switchtower up`: an in-memory cluster, simulated workers and one router, in one process.

use crate::{announce::announce, arguments::UpArguments, failure::Failure, status};
use std::{sync::Arc, time::Duration};
use switchtower_cluster::DistributedRuntime;
use switchtower_frontend::{BoundFrontend, HttpFrontend};
use switchtower_models::{EngineConfig, Model, ModelSource};
use switchtower_policies::Catalogue;
use switchtower_policy::KvRouterConfig;
use switchtower_runtime::{CancellationToken, signals::Shutdown};
use switchtower_worker::{RunningWorker, SimulatedWorker, SimulatedWorkerConfig};

/// How long tasks may take to end once everything has drained.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// Starts everything, serves until told to stop, and ends it in order: the router drains while its workers still
/// answer, then the workers drain.
pub(crate) async fn up(arguments: UpArguments, catalogue: Catalogue) -> Result<(), Failure> {
    let workers = worker_configs(&arguments)?;
    let runtime = DistributedRuntime::in_memory("up");
    let served = serve(&arguments, workers, catalogue, &runtime).await;
    // After a failed start too: tasks that are torn down with the process would complain of one another's end.
    runtime.tasks().shutdown(STOP_DEADLINE).await;
    served?;
    match runtime.tasks().failure() {
        Some(failure) => Err(Failure::start(failure)),
        None => Ok(()),
    }
}

async fn serve(
    arguments: &UpArguments,
    workers: Vec<SimulatedWorkerConfig>,
    catalogue: Catalogue,
    runtime: &DistributedRuntime,
) -> Result<(), Failure> {
    let shutdown = Shutdown::listen(runtime.tasks()).map_err(Failure::start)?;
    let config = engine_config(arguments);
    let source = config.models[0].clone();
    let drain = config.timeouts.drain();
    let frontend = HttpFrontend::default().catalogue(catalogue).bind(runtime.clone(), config).await?;
    let workers = start_workers(workers, &source, runtime).await?;

    welcome(&frontend, source.name(), workers.len());
    runtime.tasks().spawn_until_shutdown("status line", status::follow(frontend.selection()));
    let stopping = runtime.shutdown_token();
    runtime.tasks().spawn_named("signal", async move {
        shutdown.requested().await;
        stopping.cancel();
    });
    let announcement =
        announce(&frontend, runtime, &runtime.tasks().child_with_token("replica", CancellationToken::new()))?;
    frontend.serve().await;
    announcement.end().await;
    for worker in workers {
        worker.drain(drain).await;
    }
    Ok(())
}

fn engine_config(arguments: &UpArguments) -> EngineConfig {
    let router = KvRouterConfig {
        policy: arguments.policy.clone(),
        seed: arguments.seed,
        queue_threshold: arguments.queue_threshold,
        ..KvRouterConfig::default()
    };
    EngineConfig {
        models: vec![arguments.model.source().unwrap_or(ModelSource::BuiltIn)],
        http: arguments.http,
        admin: arguments.admin,
        router,
        ..EngineConfig::default()
    }
}

/// Checked before anything starts.
fn worker_configs(arguments: &UpArguments) -> Result<Vec<SimulatedWorkerConfig>, Failure> {
    let config = |worker_id| {
        let config = SimulatedWorkerConfig {
            worker_id,
            ranks: arguments.ranks,
            speed: arguments.speed,
            ..SimulatedWorkerConfig::default()
        };
        config.validate().map(|()| config).map_err(Failure::configuration)
    };
    (1..=u64::from(arguments.workers)).map(config).collect()
}

async fn start_workers(
    configs: Vec<SimulatedWorkerConfig>,
    source: &ModelSource,
    runtime: &DistributedRuntime,
) -> Result<Vec<RunningWorker>, Failure> {
    let model = Arc::new(Model::load(source).map_err(Failure::configuration)?);
    let mut workers = Vec::with_capacity(configs.len());
    for config in configs {
        let worker = SimulatedWorker::build(config, Arc::clone(&model), runtime.clone()).await;
        workers.push(worker.map_err(Failure::start)?.start().await.map_err(Failure::start)?);
    }
    Ok(workers)
}

/// The URL, and something to try.
fn welcome(frontend: &BoundFrontend, model: &str, workers: usize) {
    let address = frontend.local_addr();
    let lines = [
        status::listening(frontend),
        format!("{workers} simulated workers serve `{model}`; try:"),
        format!("  curl -N http://{address}/v1/chat/completions -H 'content-type: application/json' \\"),
        format!(
            "    -d '{{\"model\":\"{model}\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'"
        ),
        "Ctrl-C to drain and stop, twice to stop at once".to_owned(),
    ];
    // Whoever has read enough may close its end.
    let _ = lines.iter().try_for_each(|line| status::say(line));
}
