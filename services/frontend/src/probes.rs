//! What machines ask: is it alive, may it get traffic, how is it, what are its numbers.
//!
//! Design invariant 7: readiness is answered from the tables that route, and from nothing else.

use crate::{refusal::Refusal, state::FrontendState};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::header;
use prometheus_client::encoding::text::encode;
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};
use switchtower_scheduling::Rejection;

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /live`: the process runs.
pub(crate) async fn live() -> &'static str {
    "live\n"
}

/// `GET /ready`: the process can route every model that it is configured for.
pub(crate) async fn ready(State(state): State<Arc<FrontendState>>) -> Response {
    match obstacle(&state) {
        None => "ready\n".into_response(),
        Some(refusal) => refusal.into_response(),
    }
}

/// What stands in the way of routing.
fn obstacle(state: &FrontendState) -> Option<Refusal> {
    if state.shutdown.is_cancelled() {
        return Some(Rejection::ShuttingDown.into());
    }
    if !state.selection.is_ready() {
        return Some(Refusal::not_ready(what_is_missing(state)));
    }
    let rows = rows(state);
    let unserved: Vec<&str> =
        rows.iter().filter(|(_, counts)| counts.open_rows == 0).map(|(model, _)| &**model).collect();
    match unserved.is_empty() {
        true => None,
        false => Some(Refusal::not_ready(format!("no worker takes requests for {}", unserved.join(", ")))),
    }
}

/// Why the tables that route are not filled yet: a connection, records, or blocks.
fn what_is_missing(state: &FrontendState) -> String {
    let health = state.selection.cluster_health();
    let ports = [("the store of records", health.discovery), ("the message bus", health.bus)];
    match ports.into_iter().find(|(_, port)| !port.connected) {
        Some((name, port)) => {
            let why = port.last_error.map(|error| format!(" ({error})")).unwrap_or_default();
            format!("{name} is not connected{why}; trying on")
        }
        None if state.selection.is_synced() => {
            "the index is being filled: not every worker's KV event log has been read".to_owned()
        }
        None => "the registry has not seen the cluster's workers yet".to_owned(),
    }
}

/// The workers and rows of one model.
#[derive(Clone, Copy, Default, Serialize)]
struct Counts {
    workers: usize,
    rows: usize,
    /// Those that take new requests.
    open_rows: usize,
}

/// By configured model, in all its routing groups and stages.
fn rows(state: &FrontendState) -> BTreeMap<Arc<str>, Counts> {
    let mut rows: BTreeMap<Arc<str>, Counts> =
        state.models.keys().map(|model| (Arc::clone(model), Counts::default())).collect();
    for status in state.selection.models() {
        if let Some(counts) = rows.get_mut(&status.model) {
            counts.workers += status.workers;
            counts.rows += status.rows;
            counts.open_rows += status.open_rows;
        }
    }
    rows
}

/// `GET /health`.
#[derive(Serialize)]
struct Health {
    status: &'static str,
    registry_synced: bool,
    models: BTreeMap<Arc<str>, Counts>,
    requests_in_flight: i64,
    uptime_s: u64,
}

/// `GET /health`: a summary, always 200 while the process can answer at all.
pub(crate) async fn health(State(state): State<Arc<FrontendState>>) -> Response {
    let status = match (state.shutdown.is_cancelled(), obstacle(&state)) {
        (true, _) => "draining",
        (false, Some(_)) => "degraded",
        (false, None) => "ok",
    };
    let health = Health {
        status,
        registry_synced: state.selection.is_synced(),
        models: rows(&state),
        requests_in_flight: state.metrics.in_flight.get(),
        uptime_s: state.started.elapsed().as_secs(),
    };
    Json(health).into_response()
}

/// `GET /metrics`, in OpenMetrics' text format.
pub(crate) async fn metrics(State(state): State<Arc<FrontendState>>) -> Response {
    state.selection.refresh_metrics().await;
    let mut text = String::new();
    match encode(&mut text, &state.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(_) => Refusal::internal("writing the metrics").into_response(),
    }
}
