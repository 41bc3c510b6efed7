//! `switchtower router`: from settings to the end of the process, in order. Starts without etcd and NATS: it listens at once,
//! says in `/readyz` what is missing, and routes when it has seen the fleet.

use super::adapters::Adapters;
use crate::{
    announce::announce,
    failure::Failure,
    settings::{REDACTION, Settings},
    status,
};
use switchtower_frontend::HttpFrontend;
use switchtower_policies::Catalogue;
use switchtower_runtime::signals::Shutdown;

/// Serves until told to stop: then readiness fails, what is in flight ends, and the connections go.
pub(crate) async fn router(settings: Settings, catalogue: Catalogue) -> Result<(), Failure> {
    let adapters = Adapters::connect(&settings).await?;
    let served = serve(&settings, catalogue, &adapters).await;
    let closed = adapters.close().await;
    served.and(closed)
}

async fn serve(settings: &Settings, catalogue: Catalogue, adapters: &Adapters) -> Result<(), Failure> {
    let runtime = &adapters.runtime;
    let shutdown = Shutdown::listen(runtime.tasks()).map_err(Failure::start)?;
    let shown = REDACTION.json(settings).map_err(Failure::start)?;
    let frontend = HttpFrontend::default()
        .catalogue(catalogue)
        .selection_options(settings.selection.clone())
        .shown_config(shown)
        .bind(runtime.clone(), settings.engine_config())
        .await?;
    // Nobody has to listen to it.
    let _ = status::say(&status::listening(&frontend));
    let stopping = runtime.shutdown_token();
    runtime.tasks().spawn_named("signal", async move {
        shutdown.requested().await;
        stopping.cancel();
    });
    let announcement = announce(&frontend, runtime, &adapters.tasks)?;
    frontend.serve().await;
    announcement.end().await;
    Ok(())
}
