//! `GET /v1/models` and one of them, answered from this process's own tables, never by a worker (field report B105). A model
//! is listed while a worker serves it, so what is listed can be asked (B12).

use crate::{refusal::Refusal, state::FrontendState};
use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use std::{collections::BTreeSet, sync::Arc};
use switchtower_models::{ModelCard, openai::RequestError};
use switchtower_scheduling::{Exclusions, Rejection};

/// A list in OpenAI's shape.
#[derive(Serialize)]
struct ModelList<'a> {
    object: &'static str,
    data: Vec<ListedModel<'a>>,
}

/// One model in OpenAI's shape, and how long a prompt it takes.
#[derive(Serialize)]
struct ListedModel<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    max_model_len: u32,
}

impl<'a> ListedModel<'a> {
    fn of(card: &'a ModelCard) -> Self {
        Self {
            id: &card.name,
            object: "model",
            created: card.created_unix_s,
            owned_by: "switchtower",
            max_model_len: card.context_length,
        }
    }
}

/// `GET /v1/models`.
pub(crate) async fn list(State(state): State<Arc<FrontendState>>) -> Response {
    let served = served(&state);
    let cards = state.models.iter().filter(|(name, _)| served.contains(*name));
    let data = cards.map(|(_, model)| ListedModel::of(model.card())).collect();
    Json(ModelList { object: "list", data }).into_response()
}

/// `GET /v1/models/{model}`: 404 where there is none, 503 where nobody serves it now.
pub(crate) async fn one(
    State(state): State<Arc<FrontendState>>,
    name: Result<Path<String>, PathRejection>,
) -> Response {
    // What is not even text names no model.
    let name = name.map_or_else(|_| char::REPLACEMENT_CHARACTER.to_string(), |Path(name)| name);
    let Some(model) = state.models.get(name.as_str()) else {
        return Refusal::from(RequestError::model_not_found(&name)).into_response();
    };
    if !served(&state).contains(name.as_str()) {
        return Refusal::from(Rejection::NothingEligible(Exclusions::default())).into_response();
    }
    Json(ListedModel::of(model.card())).into_response()
}

fn served(state: &FrontendState) -> BTreeSet<Arc<str>> {
    state
        .selection
        .models()
        .into_iter()
        .filter(|status| status.open_rows > 0)
        .map(|status| status.model)
        .collect()
}
