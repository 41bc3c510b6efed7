//! The worker's HTTP routes: OpenAI's API, health, and the engine's cache reset. Wires a request through gate, identity,
//! faults, preparation and rank; the parts decide. Mounted by `worker`.

use crate::{
    answer::{Broken, Runs},
    error::ApiError,
    prepare::{Prepared, Shape, prepare},
    rank::Rank,
    service::Service,
};
use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http_body_util::LengthLimitError;
use serde_json::{Value, json};
use std::{error::Error, sync::Arc, time::Duration};
use switchtower_ids::Incarnation;
use switchtower_models::openai::RequestError;
use switchtower_selection::wire::{INCARNATION_HEADER, RANK_HEADER};

/// All routes of one worker.
pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completion))
        .route("/v1/models", get(models))
        .route("/health", get(health))
        .route("/reset_prefix_cache", post(reset_prefix_cache))
        .fallback(no_such_route)
        .with_state(service)
}

async fn chat(State(service): State<Arc<Service>>, request: Request) -> Result<Response, ApiError> {
    answer(service, Shape::Chat, request).await
}

async fn completion(State(service): State<Arc<Service>>, request: Request) -> Result<Response, ApiError> {
    answer(service, Shape::Text, request).await
}

/// A request's way through the worker. Dropping the future, or the body that it returns, frees everything at once.
async fn answer(service: Arc<Service>, shape: Shape, request: Request) -> Result<Response, ApiError> {
    let inside = service.gate.enter().ok_or(ApiError::Draining)?;
    let (parts, body) = request.into_parts();
    let rank = addressed_rank(&service, &parts.headers)?;
    let body = read(body, service.config.max_body_bytes).await?;
    let fate = service.faults.draw();
    if fate.fails {
        return Err(ApiError::InjectedFault);
    }
    if fate.slow_ms > 0 {
        tokio::time::sleep(Duration::from_millis(fate.slow_ms)).await;
    }
    let prepared = prepare_aside(&service, shape, body).await?;
    let rank = rank.unwrap_or_else(|| service.least_loaded());
    let frames = service.frames(shape);
    let Prepared { stream, prompt_tokens, answers } = prepared;
    let requests = answers.into_iter().map(|(spec, script)| Ok((script, rank.submit(spec)?)));
    let requests = requests.collect::<Result<Vec<_>, ApiError>>()?;
    let runs = Runs::new(requests, prompt_tokens, fate.cut_after_tokens, inside);
    let mut response = match stream {
        Some(options) => event_stream(Body::from_stream(runs.streamed(frames, options))),
        None => match runs.whole(&frames).await? {
            Some(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
            None => Body::from_stream(futures::stream::iter([Err::<Bytes, _>(Broken)])).into_response(),
        },
    };
    response.headers_mut().insert(RANK_HEADER, HeaderValue::from(rank.number().0));
    Ok(response)
}

/// Checks that the request is meant for this life, and finds the rank that it names.
fn addressed_rank(service: &Service, headers: &HeaderMap) -> Result<Option<Arc<Rank>>, ApiError> {
    const RULE: &str = "the 16 hexadecimal digits of the worker's record";
    if let Some(value) = headers.get(INCARNATION_HEADER) {
        let parsed = value.to_str().ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        let wanted = Incarnation(parsed.ok_or(ApiError::Header { name: INCARNATION_HEADER, rule: RULE })?);
        let ours = service.incarnation;
        if wanted != ours {
            return Err(ApiError::IncarnationMismatch { wanted, ours });
        }
    }
    let Some(value) = headers.get(RANK_HEADER) else {
        return Ok(None);
    };
    let parsed = value.to_str().ok().and_then(|text| text.parse::<u32>().ok());
    let rank = parsed.ok_or(ApiError::Header { name: RANK_HEADER, rule: "a rank's number, from 0" })?;
    let last = service.config.ranks - 1;
    let found = service.rank(switchtower_ids::Rank(rank)).ok_or(ApiError::NoSuchRank { rank, last })?;
    Ok(Some(Arc::clone(found)))
}

async fn read(body: Body, bytes_max: usize) -> Result<Bytes, ApiError> {
    axum::body::to_bytes(body, bytes_max).await.map_err(|error| {
        let too_large = error.source().is_some_and(|source| source.is::<LengthLimitError>());
        ApiError::Request(match too_large {
            true => RequestError::body_too_large(bytes_max),
            false => RequestError::invalid(None, "body_incomplete", "the body ended early: send it whole"),
        })
    })
}

/// Tokenizing is CPU-bound: not on the threads that serve connections.
async fn prepare_aside(service: &Arc<Service>, shape: Shape, body: Bytes) -> Result<Prepared, ApiError> {
    // The semaphore is never closed, so the desk always comes.
    let desk = Arc::clone(&service.desks).acquire_owned().await.ok();
    let service = Arc::clone(service);
    let work = move || {
        let _desk = desk;
        prepare(&service.model, &service.config, shape, &body)
    };
    tokio::task::spawn_blocking(work).await.map_err(|_| ApiError::Internal)?
}

fn event_stream(body: Body) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, body).into_response()
}

async fn models(State(service): State<Arc<Service>>) -> Json<Value> {
    let card = service.model.card();
    Json(json!({
        "object": "list",
        "data": [{
            "id": card.name,
            "object": "model",
            "created": card.created_unix_s,
            "owned_by": "switchtower",
            "max_model_len": card.context_length,
        }],
    }))
}

/// 200 while the worker takes requests; 503 while it drains or one of its engines has stopped.
async fn health(State(service): State<Arc<Service>>) -> Response {
    let (status, word) = if service.gate.is_closed() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if service.ranks.iter().any(|rank| rank.has_stopped()) {
        (StatusCode::SERVICE_UNAVAILABLE, "engine stopped")
    } else {
        (StatusCode::OK, "ok")
    };
    let body = json!({
        "status": word,
        "worker_id": service.config.worker_id,
        "incarnation": service.incarnation.to_string(),
        "ranks": service.config.ranks,
        "requests": service.gate.inside(),
    });
    (status, Json(body)).into_response()
}

/// Empties the prefix cache of every rank, as vLLM does under the same path.
async fn reset_prefix_cache(State(service): State<Arc<Service>>) -> Result<Json<Value>, ApiError> {
    let cleared = service.ranks.iter().filter(|rank| rank.clear_cache()).count();
    if cleared == service.ranks.len() { Ok(Json(json!({"status": "ok"}))) } else { Err(ApiError::CacheInUse) }
}

async fn no_such_route(request: Request) -> ApiError {
    // Both are the client's own words: show enough to be recognised.
    let shown = |text: &str| text.chars().take(64).collect();
    ApiError::NoSuchRoute { method: shown(request.method().as_str()), path: shown(request.uri().path()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimulatedWorkerConfig;
    use futures::FutureExt;
    use switchtower_models::{Model, ModelSource};

    #[tokio::test]
    async fn no_more_requests_are_prepared_at_a_time_than_there_are_desks() {
        let model = Arc::new(Model::load(&ModelSource::BuiltIn).unwrap());
        let service = Arc::new(Service::new(SimulatedWorkerConfig::default(), model).unwrap());
        let desks = u32::try_from(service.desks.available_permits()).unwrap();
        let all = service.desks.acquire_many(desks).await.unwrap();
        let body = Bytes::from_static(br#"{"model":"switchtower-demo","prompt":"a"}"#);
        let mut preparing = Box::pin(prepare_aside(&service, Shape::Text, body));
        tokio::task::yield_now().await;
        assert!(preparing.as_mut().now_or_never().is_none() && service.desks.available_permits() == 0);
        drop(all);
        assert_eq!(preparing.await.unwrap().answers.len(), 1);
    }
}
