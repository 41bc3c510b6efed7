//! The corridor: a request's way from the socket to a worker and back, in order. Each step is a room of its own; this
//! file only says what follows what, and that a refusal at any step is counted once and answered in one shape.

use crate::{
    body,
    dispatch::dispatch,
    exchange::Exchange,
    hints::Hints,
    idle::Idle,
    outbound::Outbound,
    prompt::{Endpoint, RefusedBody, RoutedPrompt, judge},
    refusal::{Refusal, advise_retry, label},
    relay::{Framing, Relay, RelayParts},
    request_id::{REQUEST_ID, request_id},
    state::FrontendState,
    usage::Tail,
    worker_answer::WorkerAnswer,
};
use axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use std::sync::Arc;
use switchtower_selection::{Reservation, SelectionRequest};

/// Which row answers.
const WORKER: HeaderName = HeaderName::from_static("x-switchtower-worker");

/// Headers of a worker that clients see as they are.
const PASSED_BACK: [HeaderName; 4] =
    [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CACHE_CONTROL, header::RETRY_AFTER];

/// Bodies up to this long are judged at once, in about a millisecond; longer ones go to a thread where they may block.
const INLINE_BYTES_MAX: usize = 8 * 1024;

/// `POST /v1/chat/completions`.
pub(crate) async fn chat(State(state): State<Arc<FrontendState>>, request: Request) -> Response {
    generate(&state, Endpoint::Chat, request).await
}

/// `POST /v1/completions`.
pub(crate) async fn completions(State(state): State<Arc<FrontendState>>, request: Request) -> Response {
    generate(&state, Endpoint::Completions, request).await
}

async fn generate(state: &Arc<FrontendState>, endpoint: Endpoint, request: Request) -> Response {
    let id = request_id(request.headers());
    let place = Arc::clone(&state.places).try_acquire_owned().ok();
    let is_placed = place.is_some();
    let mut exchange = Exchange::begin(&state.metrics, endpoint.label(), place);
    let routed = if is_placed {
        Box::pin(route(state, endpoint, request, &id, &mut exchange)).await
    } else {
        body::discard(request.into_body(), state.body_limits()).await;
        Err(Refusal::too_many_requests(state.limits.max_concurrent_requests))
    };
    let mut response = match routed {
        Ok(routed) => respond(state, routed, exchange),
        Err(refusal) => {
            tracing::debug!(?id, status = refusal.status().as_u16(), outcome = refusal.label(), "refused");
            exchange.settle(refusal.label());
            refusal.into_response()
        }
    };
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// A request whose worker has begun to answer.
struct Routed {
    reservation: Reservation,
    answer: WorkerAnswer,
    output_tokens_max: u64,
}

async fn route(
    state: &Arc<FrontendState>,
    endpoint: Endpoint,
    request: Request,
    id: &HeaderValue,
    exchange: &mut Exchange,
) -> Result<Routed, Refusal> {
    let (head, body) = request.into_parts();
    let body = body::read(body, &head.headers, state.body_limits()).await?;
    let prompt = judge_aside(state, endpoint, body.clone()).await?.map_err(|refused| {
        refused.model.into_iter().for_each(|model| exchange.model_known(model));
        refused.error
    })?;
    exchange.model_known(Arc::clone(&prompt.model));
    let hints = Hints::read(&head.headers)?;
    let output_tokens_max = prompt.output_tokens_max;
    let mut reservation = state.selection.select_and_reserve(selection_request(prompt, hints)).await?;
    let selection = reservation.selection();
    tracing::debug!(?id, row = %selection.row, prompt_tokens = selection.prompt_tokens, "dispatching");
    exchange.booked(selection.prompt_tokens, selection.cached_tokens);
    let outbound = outbound(state, endpoint, &head.headers, body).with_id(id);
    let answer = dispatch(state, &mut reservation, &outbound).await?;
    Ok(Routed { reservation, answer, output_tokens_max })
}

/// Judges a body where that holds up nobody else.
pub(crate) async fn judge_aside(
    state: &Arc<FrontendState>,
    endpoint: Endpoint,
    body: Bytes,
) -> Result<Result<RoutedPrompt, RefusedBody>, Refusal> {
    if body.len() <= INLINE_BYTES_MAX {
        return Ok(judge(&state.models, endpoint, &body));
    }
    // The semaphore is never closed, so the desk always comes.
    let desk = Arc::clone(&state.desks).acquire_owned().await.ok();
    let models = Arc::clone(&state.models);
    let judging = tokio::task::spawn_blocking(move || {
        let _desk = desk;
        judge(&models, endpoint, &body)
    });
    judging.await.map_err(|_| Refusal::internal("reading the request"))
}

fn selection_request(prompt: RoutedPrompt, hints: Hints) -> SelectionRequest {
    let mut request = SelectionRequest::new(&prompt.model, prompt.tokens);
    request.cache_salt = prompt.cache_salt;
    request.constraints = hints.constraints;
    request.priority = hints.priority;
    request.session = hints.session;
    request.deadline = hints.deadline;
    request.expected_output_tokens = hints.expected_output_tokens;
    request
}

fn outbound(state: &FrontendState, endpoint: Endpoint, headers: &HeaderMap, body: Bytes) -> Outbound {
    let outbound = Outbound::new(endpoint, headers, body);
    if state.settings.forward_authorization { outbound.with_authorization(headers) } else { outbound }
}

/// The response: the worker's status and body, with the row that answers.
fn respond(state: &FrontendState, routed: Routed, exchange: Exchange) -> Response {
    let Routed { reservation, answer, output_tokens_max } = routed;
    let (status, row) = (answer.status(), answer.row());
    let mut headers = HeaderMap::new();
    for name in PASSED_BACK {
        if let Some(value) = answer.headers().get(&name) {
            headers.insert(name, value.clone());
        }
    }
    headers.extend(HeaderValue::try_from(row.to_string()).map(|row| (WORKER, row)));
    let framing = framing(status, answer.headers());
    let (read, rest) = answer.into_body();
    let idle = Idle::new(state.timeouts.idle());
    let parts = RelayParts { read, rest, framing, idle, reservation, exchange, output_tokens_max };
    let mut response = Response::new(Body::new(Relay::start(parts)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    advise_retry(&mut response);
    response
}

/// Events are looked into where they are readable; what a worker refuses is a document.
fn framing(status: StatusCode, headers: &HeaderMap) -> Framing {
    let is_events = headers.get(header::CONTENT_TYPE).is_some_and(|media_type| {
        media_type.as_bytes().to_ascii_lowercase().starts_with(b"text/event-stream")
    });
    if status.is_success() && is_events && !headers.contains_key(header::CONTENT_ENCODING) {
        return Framing::Events(Box::default());
    }
    let outcome = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => label::OVERLOAD,
        status if status.is_success() => label::OK,
        _ => label::REFUSED_BY_WORKER,
    };
    Framing::Document(Tail::default(), outcome)
}
