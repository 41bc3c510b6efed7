//! `POST /admin/workers/{worker_id}/drain` and `…/resume`: an operator's word about one worker, kept in discovery, so that
//! every replica follows it (field report B164).

use super::{AdminState, named};
use crate::{body, refusal::Refusal};
use axum::{
    extract::{Path, Request, State},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use switchtower_ids::WorkerId;
use switchtower_models::openai::RequestError;
use switchtower_selection::{AdminError, DrainOutcome};

/// What may be said with it. An empty body says nothing.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Remark {
    reason: String,
}

/// What came of it.
#[derive(Serialize)]
struct Done {
    worker_id: WorkerId,
    outcome: DrainOutcome,
}

/// `POST /admin/workers/{worker_id}/drain`: it gets nothing new; what runs there goes on.
pub(crate) async fn drain(
    State(state): State<Arc<AdminState>>,
    Path(worker): Path<String>,
    request: Request,
) -> Response {
    let done = async {
        let (worker_id, remark) = (worker_id(&worker)?, remark(&state, request).await?);
        let outcome = state.frontend.selection.drain(worker_id, &remark.reason).await;
        outcome.map(|outcome| Done { worker_id, outcome }).map_err(|error| refused(&error))
    };
    answer("drain", done.await)
}

/// `POST /admin/workers/{worker_id}/resume`: it gets requests again.
pub(crate) async fn resume(State(state): State<Arc<AdminState>>, Path(worker): Path<String>) -> Response {
    let done = async {
        let worker_id = worker_id(&worker)?;
        let outcome = state.frontend.selection.resume(worker_id).await;
        outcome.map(|outcome| Done { worker_id, outcome }).map_err(|error| refused(&error))
    };
    answer("resume", done.await)
}

fn answer(name: &'static str, done: Result<Done, Refusal>) -> Response {
    done.map_or_else(IntoResponse::into_response, |done| named(name, [done]))
}

async fn remark(state: &AdminState, request: Request) -> Result<Remark, Refusal> {
    let (head, body) = request.into_parts();
    let body = body::read(body, &head.headers, state.frontend.body_limits()).await?;
    if body.is_empty() {
        return Ok(Remark::default());
    }
    serde_json::from_slice(&body)
        .map_err(|error| RequestError::invalid(None, "invalid_value", error.to_string()).into())
}

fn worker_id(text: &str) -> Result<WorkerId, Refusal> {
    let invalid = || {
        let message = "must be a worker's id, a number, as GET /admin/workers lists them";
        RequestError::invalid("worker_id".to_owned(), "invalid_value", message).into()
    };
    text.parse().map(WorkerId).map_err(|_| invalid())
}

fn refused(error: &AdminError) -> Refusal {
    match error {
        AdminError::UnknownWorker(_) => Refusal::unknown_worker(error.to_string()),
        AdminError::Setting(why) => {
            RequestError::invalid("reason".to_owned(), "invalid_value", why.to_string()).into()
        }
        AdminError::Discovery(error) => Refusal::discovery(error),
    }
}
