//! `switchtower worker --engine`: the agent of a real engine as a process, from settings to its end, in order.

use super::adapters::Adapters;
use crate::{failure::Failure, settings::Settings, status};
use switchtower_runtime::signals::Shutdown;
use switchtower_worker::EngineAgent;

/// Keeps the engine registered while it is well, until told to stop; then drains and deregisters it.
pub(crate) async fn engine_agent(settings: Settings) -> Result<(), Failure> {
    let adapters = Adapters::connect(&settings).await?;
    let kept = keep(&settings, &adapters).await;
    let closed = adapters.close().await;
    kept.and(closed)
}

async fn keep(settings: &Settings, adapters: &Adapters) -> Result<(), Failure> {
    let runtime = &adapters.runtime;
    let shutdown = Shutdown::listen(runtime.tasks()).map_err(Failure::start)?;
    let config = settings.engine_agent.clone();
    // Nobody has to listen to it.
    let _ = status::say(&format!("worker {} stands for the engine at {}", config.worker_id, config.url));
    let agent = EngineAgent::build(config, runtime.clone()).map_err(Failure::configuration)?;
    agent.run(&shutdown.token()).await.map_err(Failure::start)
}
