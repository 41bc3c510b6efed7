//! `switchtower up`: an in-memory cluster, simulated workers and one router, in one process.

use crate::{arguments::UpArguments, failure::Failure, status};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use switchtower_cluster::DistributedRuntime;
use switchtower_frontend::HttpFrontend;
use switchtower_models::{EngineConfig, Model, ModelSource};
use switchtower_policies::Catalogue;
use switchtower_policy::KvRouterConfig;
use switchtower_runtime::signals::Shutdown;
use switchtower_worker::{RunningWorker, SimulatedWorker, SimulatedWorkerConfig};

/// The built-in model, where a tokenizer is given without a name for its model.
const UNNAMED_MODEL: &str = "model";

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

    welcome(frontend.local_addr(), source.name(), workers.len());
    runtime.tasks().spawn_until_shutdown("status line", status::follow(frontend.selection()));
    let stopping = runtime.shutdown_token();
    runtime.tasks().spawn_named("signal", async move {
        shutdown.requested().await;
        stopping.cancel();
    });
    frontend.serve().await;
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
        models: vec![model_source(arguments)],
        http: arguments.http,
        router,
        ..EngineConfig::default()
    }
}

fn model_source(arguments: &UpArguments) -> ModelSource {
    match (&arguments.tokenizer, arguments.model.as_deref()) {
        (Some(path), name) => ModelSource::path(name.unwrap_or(UNNAMED_MODEL), path),
        (None, Some(name)) => ModelSource::built_in_as(name),
        (None, None) => ModelSource::BuiltIn,
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
fn welcome(address: SocketAddr, model: &str, workers: usize) {
    let lines = [
        format!("listening on http://{address}"),
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
