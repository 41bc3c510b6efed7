//! Building, binding, serving and ending a front end: one function each, in order. Called by the command and by custom
//! binaries.

use crate::{
    admin::{self, AdminState},
    error::FrontendError,
    prompt::Models,
    routes::router,
    state::{DispatchSettings, FrontendState, StateParts},
};
use futures::future::OptionFuture;
use serde_json::Value;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use switchtower_cluster::DistributedRuntime;
use switchtower_models::{EngineConfig, Model, ModelError, ModelSource};
use switchtower_policies::Catalogue;
use switchtower_policy::{KvRouterConfig, WorkerSelectionPolicyFactory};
use switchtower_runtime::{
    CancellationToken,
    config::Redaction,
    http_server::{self, HttpServerOptions},
};
use switchtower_selection::{SelectionHandle, SelectionOptions, SelectionService, SelectionServiceBuilder};
use tokio::net::TcpListener;

/// The OpenAI-compatible HTTP front end, before it runs.
#[derive(Clone, Default)]
pub struct HttpFrontend {
    factory: Option<Arc<dyn WorkerSelectionPolicyFactory>>,
    catalogue: Option<Catalogue>,
    settings: DispatchSettings,
    selection_options: SelectionOptions,
    shown_config: Option<Value>,
}

impl HttpFrontend {
    /// Serves with this policy, whatever name the configuration gives.
    #[must_use]
    pub fn worker_selection_policy_factory(mut self, factory: impl WorkerSelectionPolicyFactory) -> Self {
        self.factory = Some(Arc::new(factory));
        self
    }

    /// The policies that the configuration may name; the built-in ones unless given.
    #[must_use]
    pub fn catalogue(mut self, catalogue: Catalogue) -> Self {
        self.catalogue = Some(catalogue);
        self
    }

    /// Limits and times of the selection service.
    #[must_use]
    pub fn selection_options(mut self, options: SelectionOptions) -> Self {
        self.selection_options = options;
        self
    }

    /// What the admin API shows as this process's settings: a tree without secrets. The engine's configuration unless given.
    #[must_use]
    pub fn shown_config(mut self, config: Value) -> Self {
        self.shown_config = Some(config);
        self
    }

    /// The most workers that one request is sent to, one after the other, before its first byte; 3 unless given, and
    /// never less than 1.
    #[must_use]
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.settings.attempts_max = attempts.max(1);
        self
    }

    /// Whether workers see the caller's `authorization` header; they do not unless this says so.
    #[must_use]
    pub fn forward_authorization(mut self, forward: bool) -> Self {
        self.settings.forward_authorization = forward;
        self
    }

    /// Serves until the runtime is told to shut down, then lets what is in flight end.
    ///
    /// # Errors
    /// The front end cannot start; see [`FrontendError`].
    pub async fn run(self, runtime: DistributedRuntime, config: EngineConfig) -> Result<(), FrontendError> {
        self.bind(runtime, config).await?.serve().await;
        Ok(())
    }

    /// Loads the models, builds the selection service and binds the addresses. Connections wait until
    /// [`BoundFrontend::serve`] runs.
    ///
    /// # Errors
    /// See [`FrontendError`]; nothing is left running.
    pub async fn bind(
        self,
        runtime: DistributedRuntime,
        config: EngineConfig,
    ) -> Result<BoundFrontend, FrontendError> {
        config.validate()?;
        let models = load(config.models.clone()).await?;
        let listener = Listener::bind(config.http).await?;
        let admin = match config.admin {
            Some(address) => Some(Listener::bind(address).await?),
            None => None,
        };
        let service = self.selection_service(&runtime, config.router.clone()).await?;
        let parts = StateParts {
            models,
            selection: service.handle(),
            settings: self.settings,
            shutdown: runtime.shutdown_token(),
        };
        let state = Arc::new(FrontendState::new(parts, &config));
        let shown = match self.shown_config {
            Some(shown) => shown,
            None => Redaction::default().json(&config)?,
        };
        Ok(BoundFrontend { runtime, config, listener, admin, service, state, shown })
    }

    async fn selection_service(
        &self,
        runtime: &DistributedRuntime,
        router: KvRouterConfig,
    ) -> Result<SelectionService, FrontendError> {
        let mut builder = SelectionServiceBuilder::new(router)
            .distributed_runtime(runtime.clone())
            .options(self.selection_options.clone());
        if let Some(factory) = self.factory.clone() {
            builder = builder.shared_policy_factory(factory);
        }
        if let Some(catalogue) = self.catalogue.clone() {
            builder = builder.catalogue(catalogue);
        }
        Ok(builder.build().await?)
    }
}

async fn load(sources: Vec<ModelSource>) -> Result<Models, FrontendError> {
    let read = move || -> Result<Models, ModelError> {
        sources.iter().map(|source| Ok((source.name().into(), Arc::new(Model::load(source)?)))).collect()
    };
    let loaded = tokio::task::spawn_blocking(read).await.map_err(|_| FrontendError::Loading)?;
    Ok(loaded?)
}

/// A listener that has its address.
struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    async fn bind(address: SocketAddr) -> Result<Self, FrontendError> {
        let failed = |source| FrontendError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }
}

/// A front end that has its addresses.
pub struct BoundFrontend {
    runtime: DistributedRuntime,
    config: EngineConfig,
    listener: Listener,
    admin: Option<Listener>,
    service: SelectionService,
    state: Arc<FrontendState>,
    shown: Value,
}

impl BoundFrontend {
    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.address
    }

    /// Where its admin API listens, if it has one.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| admin.address)
    }

    /// Its selection service.
    #[must_use]
    pub fn selection(&self) -> SelectionHandle {
        self.service.handle()
    }

    /// Serves until the runtime is told to shut down. Then, in this order: readiness fails, no connection is accepted any
    /// more, requests in flight end or are cut at the drain's deadline, the admin API ends, and the selection service stops.
    pub async fn serve(self) {
        let options = server_options(&self.config);
        let (tasks, shutdown) = (self.runtime.tasks(), self.runtime.shutdown_token());
        // Operators look on while requests drain.
        let drained = CancellationToken::new();
        let looking_on = drained.clone().drop_guard();
        let admin = self.admin.map(|admin| {
            let app = admin::router(Arc::new(AdminState::new(Arc::clone(&self.state), &self.shown)));
            http_server::serve(admin.listener, app, admin_options(), tasks, drained)
        });
        let api = async move {
            let _looking_on = looking_on;
            http_server::serve(self.listener.listener, router(self.state), options, tasks, shutdown).await
        };
        let (drained, _) = tokio::join!(api, OptionFuture::from(admin));
        if drained.cut > 0 {
            tracing::warn!(connections = drained.cut, "requests outlived the drain and were cut");
        }
        self.service.shutdown().await;
    }
}

/// Nobody is served by the admin API, so nobody is waited for.
fn admin_options() -> HttpServerOptions {
    HttpServerOptions {
        max_connections: 256,
        drain_idle: Duration::ZERO,
        drain: Duration::from_secs(1),
        ..HttpServerOptions::default()
    }
}

fn server_options(config: &EngineConfig) -> HttpServerOptions {
    HttpServerOptions {
        max_connections: config.limits.max_connections,
        max_header_bytes: config.limits.max_header_bytes,
        header_read_timeout: Duration::from_millis(config.timeouts.header_read_ms),
        drain: config.timeouts.drain(),
        ..HttpServerOptions::default()
    }
}
