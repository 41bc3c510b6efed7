//! The admin API: what an operator asks one replica, and the word to drain a worker, which holds for the whole cluster. On a
//! listener of its own, since it asks nobody who they are. Shows the tables that route and decides nothing; called by
//! `switchtower ctl`, by probes and by scrapers.
//!
//! Every answer is an object with one array, named like the question: `{"workers": […]}`. Errors have the shape of the
//! front end's.

mod drain;
mod overlap;
mod settings;
mod tables;

use crate::{probes, refusal::Refusal, routes::wrong_method, state::FrontendState};
use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Request},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Serialize;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// What all admin handlers share.
pub(crate) struct AdminState {
    frontend: Arc<FrontendState>,
    settings: Vec<settings::Setting>,
}

impl AdminState {
    /// `config` is shown as it is: secrets are hidden already.
    pub(crate) fn new(frontend: Arc<FrontendState>, config: &Value) -> Self {
        Self { frontend, settings: settings::flatten(config) }
    }
}

/// The admin API. The probes and the metrics are those of the front end under the names that operators expect.
pub(crate) fn router(state: Arc<AdminState>) -> Router {
    let probes = Router::new()
        .route("/healthz", get(probes::live))
        .route("/readyz", get(probes::ready))
        .route("/metrics", get(probes::metrics))
        .with_state(Arc::clone(&state.frontend));
    Router::new()
        .route("/admin/workers", get(tables::workers))
        .route("/admin/refused", get(tables::refused))
        .route("/admin/replicas", get(tables::replicas))
        .route("/admin/index", get(tables::index))
        .route("/admin/loads", get(tables::loads))
        .route("/admin/config", get(settings::settings))
        .route("/admin/overlap", post(overlap::overlap))
        .route("/admin/workers/{worker_id}/drain", post(drain::drain))
        .route("/admin/workers/{worker_id}/resume", post(drain::resume))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
        .merge(probes)
}

async fn unknown_path(request: Request) -> Response {
    let known = "/admin/workers, /admin/loads, /admin/index, /admin/config, /healthz, /readyz and /metrics";
    Refusal::unknown_path(request.uri().path(), known).into_response()
}

/// `{"name": […]}`.
fn named(name: &'static str, list: impl Serialize) -> Response {
    Json(BTreeMap::from([(name, list)])).into_response()
}
