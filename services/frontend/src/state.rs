//! What every handler shares: the models, the way to a worker, the limits, the metrics. Built once by `frontend`.

use crate::{body::BodyLimits, metrics::Metrics, prompt::Models};
use prometheus_client::registry::Registry;
use std::{sync::Arc, time::Instant};
use switchtower_models::{EngineConfig, Limits, Timeouts};
use switchtower_runtime::{
    CancellationToken,
    http_client::{HttpClient, HttpClientOptions, http_client},
};
use switchtower_selection::SelectionHandle;
use tokio::sync::Semaphore;

/// Settings of the front end that are not in [`EngineConfig`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DispatchSettings {
    /// Workers that one request is sent to at most, one after the other.
    pub(crate) attempts_max: u32,
    /// Whether workers see the caller's `authorization` header.
    pub(crate) forward_authorization: bool,
}

impl Default for DispatchSettings {
    fn default() -> Self {
        Self { attempts_max: 3, forward_authorization: false }
    }
}

/// What the state is made of.
pub(crate) struct StateParts {
    pub(crate) models: Models,
    pub(crate) selection: SelectionHandle,
    pub(crate) settings: DispatchSettings,
    pub(crate) shutdown: CancellationToken,
}

/// Shared by all handlers.
pub(crate) struct FrontendState {
    pub(crate) models: Arc<Models>,
    pub(crate) selection: SelectionHandle,
    pub(crate) settings: DispatchSettings,
    /// Cancelled once the process shall end.
    pub(crate) shutdown: CancellationToken,
    pub(crate) client: HttpClient,
    pub(crate) limits: Limits,
    pub(crate) timeouts: Timeouts,
    pub(crate) metrics: Metrics,
    pub(crate) registry: Registry,
    /// Places for requests in flight.
    pub(crate) places: Arc<Semaphore>,
    /// Places for judging long bodies: as many as there are cores, so that short ones are not held up (B137).
    pub(crate) desks: Arc<Semaphore>,
    pub(crate) started: Instant,
}

impl FrontendState {
    pub(crate) fn new(parts: StateParts, config: &EngineConfig) -> Self {
        let mut registry = Registry::default();
        parts.selection.register_metrics(&mut registry);
        let metrics = Metrics::register(&mut registry);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let places = config.limits.max_concurrent_requests.min(Semaphore::MAX_PERMITS);
        let client = HttpClientOptions {
            connect_timeout: std::time::Duration::from_millis(config.timeouts.connect_ms),
            ..HttpClientOptions::default()
        };
        Self {
            models: Arc::new(parts.models),
            selection: parts.selection,
            settings: parts.settings,
            shutdown: parts.shutdown,
            client: http_client(&client),
            limits: config.limits.clone(),
            timeouts: config.timeouts.clone(),
            metrics,
            registry,
            places: Arc::new(Semaphore::new(places)),
            desks: Arc::new(Semaphore::new(cores)),
            started: Instant::now(),
        }
    }

    /// How much of a body is read, and for how long.
    pub(crate) fn body_limits(&self) -> BodyLimits {
        BodyLimits { bytes_max: self.limits.max_body_bytes, read_ms: self.timeouts.body_read_ms }
    }
}
