//! What is there to be looked at, as the selection service shows it and in its order: the registry's workers, the records
//! that it refuses, loads, the index, the other replicas.

use super::{AdminState, named};
use crate::refusal::Refusal;
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use std::sync::Arc;
use switchtower_selection::LoadRow;

/// `GET /admin/workers`: the workers that take part.
pub(crate) async fn workers(State(state): State<Arc<AdminState>>) -> Response {
    named("workers", state.frontend.selection.workers())
}

/// `GET /admin/refused`: records that do not take part, and why.
pub(crate) async fn refused(State(state): State<Arc<AdminState>>) -> Response {
    named("refused", state.frontend.selection.refused_records())
}

/// `GET /admin/loads`: what is booked on each row, and what its worker reports.
pub(crate) async fn loads(State(state): State<Arc<AdminState>>) -> Response {
    let loads = state.frontend.selection.loads().await;
    named("loads", loads.iter().flat_map(|partition| partition.load_rows()).collect::<Vec<LoadRow>>())
}

/// `GET /admin/index`: how many blocks each row has in each tier, and a digest to compare replicas by.
pub(crate) async fn index(State(state): State<Arc<AdminState>>) -> Response {
    named("index", state.frontend.selection.index_rows().await)
}

/// `GET /admin/replicas`: the routers of the cluster.
pub(crate) async fn replicas(State(state): State<Arc<AdminState>>) -> Response {
    match state.frontend.selection.replicas().await {
        Ok(replicas) => named("replicas", replicas),
        Err(error) => Refusal::discovery(&error).into_response(),
    }
}
