//! `POST /admin/overlap`: how much of a prompt each row has cached, by the index that routes. The prompt goes the way of a
//! request's (`prompt`), so that the answer is what a request would be judged by. Books nothing.

use super::{AdminState, named};
use crate::{body, generate::judge_aside, prompt::Endpoint, refusal::Refusal};
use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use switchtower_ids::{Rank, Stage, WorkerId};
use switchtower_models::openai::RequestError;
use switchtower_selection::SelectionRequest;

/// The question. Exactly one of `prompt`, `token_ids` and `messages`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    model: String,
    prompt: Option<String>,
    token_ids: Option<Vec<u32>>,
    messages: Option<Value>,
    cache_salt: Option<String>,
    lora_name: Option<String>,
    routing_group: Option<String>,
    stage: Option<Stage>,
}

/// One row's share of the prompt, in blocks.
#[derive(Serialize)]
struct OverlapRow {
    worker_id: WorkerId,
    rank: Rank,
    device: u32,
    host: u32,
    disk: u32,
    /// Full blocks of the prompt.
    prompt_blocks: usize,
}

/// `POST /admin/overlap`.
pub(crate) async fn overlap(State(state): State<Arc<AdminState>>, request: Request) -> Response {
    match scores(&state, request).await {
        Ok(rows) => named("overlap", rows),
        Err(refusal) => refusal.into_response(),
    }
}

async fn scores(state: &AdminState, request: Request) -> Result<Vec<OverlapRow>, Refusal> {
    let (head, body) = request.into_parts();
    let body = body::read(body, &head.headers, state.frontend.body_limits()).await?;
    let question: Question =
        serde_json::from_slice(&body).map_err(|error| invalid(None, error.to_string()))?;
    let request = state.request(question).await?;
    let model = state.frontend.selection.models().into_iter();
    let block_size = model.filter(|status| status.partition == request.partition());
    let block_size = block_size.map(|status| status.block_size).next();
    let prompt_blocks = request.tokens.len() / block_size.map_or(usize::MAX, |size| size as usize);
    let rows = state.frontend.selection.overlap_scores(request).await?;
    let row = |(row, blocks): (switchtower_ids::Row, switchtower_selection::TierBlocks)| OverlapRow {
        worker_id: row.worker,
        rank: row.rank,
        device: blocks.device,
        host: blocks.host,
        disk: blocks.disk,
        prompt_blocks,
    };
    Ok(rows.into_iter().map(row).collect())
}

impl AdminState {
    async fn request(&self, question: Question) -> Result<SelectionRequest, Refusal> {
        let (endpoint, body) = as_generation(&question)?;
        let prompt = judge_aside(&self.frontend, endpoint, body).await?.map_err(|refused| refused.error)?;
        let mut request = SelectionRequest::new(&prompt.model, prompt.tokens);
        request.cache_salt = prompt.cache_salt;
        request.lora_name = question.lora_name;
        if let Some(group) = question.routing_group {
            request.routing_group = group.into();
        }
        request.stage = question.stage.unwrap_or_default();
        Ok(request)
    }
}

/// The request that would bring this prompt.
fn as_generation(question: &Question) -> Result<(Endpoint, Bytes), Refusal> {
    let Question { model, prompt, token_ids, messages, cache_salt, .. } = question;
    let (endpoint, field, content) = match (prompt, token_ids, messages) {
        (Some(text), None, None) => (Endpoint::Completions, "prompt", json!(text)),
        (None, Some(ids), None) => (Endpoint::Completions, "prompt", json!(ids)),
        (None, None, Some(messages)) => (Endpoint::Chat, "messages", messages.clone()),
        _ => {
            let message = "give one of prompt (text), token_ids (numbers) and messages (a chat)".to_owned();
            return Err(invalid(Some("prompt"), message));
        }
    };
    let mut body = json!({"model": model, field: content, "max_tokens": 1});
    if let Some(salt) = cache_salt {
        body["cache_salt"] = json!(salt);
    }
    Ok((endpoint, body.to_string().into()))
}

fn invalid(param: Option<&str>, message: String) -> Refusal {
    RequestError::invalid(param.map(str::to_owned), "invalid_value", message).into()
}
