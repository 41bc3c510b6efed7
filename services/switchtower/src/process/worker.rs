//! `switchtower worker --sim`: a simulated worker as a process, from settings to its end, in order.

use super::adapters::Adapters;
use crate::{failure::Failure, settings::Settings, status};
use std::sync::Arc;
use switchtower_models::Model;
use switchtower_runtime::{retry::RetryTimes, signals::Shutdown};
use switchtower_worker::SimulatedWorker;

/// Serves until told to stop, or until its place is lost: then it takes no new requests, deregisters, and finishes what it
/// has. A lost place is a failure, after the drain.
pub(crate) async fn worker(settings: Settings) -> Result<(), Failure> {
    let model = Arc::new(Model::load(&settings.models[0]).map_err(Failure::configuration)?);
    let adapters = Adapters::connect(&settings).await?;
    let served = serve(&settings, model, &adapters).await;
    let closed = adapters.close().await;
    served.and(closed)
}

async fn serve(settings: &Settings, model: Arc<Model>, adapters: &Adapters) -> Result<(), Failure> {
    let runtime = &adapters.runtime;
    let shutdown = Shutdown::listen(runtime.tasks()).map_err(Failure::start)?;
    let worker = SimulatedWorker::build(settings.worker.clone(), model, runtime.clone()).await;
    let worker = worker.map_err(Failure::start)?;
    // Nobody has to listen to it.
    let _ = status::say(&format!("listening on http://{}", worker.address()));
    let Some(worker) = worker.start_when_reachable(RetryTimes::default(), &shutdown.token()).await else {
        return Ok(());
    };
    let _ = status::say(&format!("worker {} is registered", settings.worker.worker_id));
    let lost = tokio::select! {
        () = shutdown.requested() => None,
        state = worker.lost() => Some(state),
    };
    worker.drain(settings.timeouts.drain()).await;
    match lost {
        None => Ok(()),
        Some(state) => {
            Err(Failure::start(format!("worker {} has ended: {state}", settings.worker.worker_id)))
        }
    }
}
