//! Which path goes to which handler, and what all other paths get. Must not hold logic.

use crate::{generate, model_list, probes, refusal::Refusal, state::FrontendState};
use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use std::sync::Arc;

/// The API.
pub(crate) fn router(state: Arc<FrontendState>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(generate::chat))
        .route("/v1/completions", post(generate::completions))
        .route("/v1/models", get(model_list::list))
        // Names of models may hold slashes.
        .route("/v1/models/{*model}", get(model_list::one))
        .route("/health", get(probes::health))
        .route("/live", get(probes::live))
        .route("/ready", get(probes::ready))
        .route("/healthz", get(probes::live))
        .route("/readyz", get(probes::ready))
        .route("/metrics", get(probes::metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        // The framework's own limit of 2 MB would come before the configured one, which `body` enforces (B99).
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}

async fn unknown_path(request: Request) -> Response {
    let known = "/v1/models, /v1/chat/completions and /v1/completions";
    Refusal::unknown_path(request.uri().path(), known).into_response()
}

pub(crate) async fn wrong_method(request: Request) -> Response {
    Refusal::wrong_method(request.method()).into_response()
}
