//! Everything the worker refuses, with its HTTP status and OpenAI-shaped body. One table; called by `api`.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use switchtower_engine_sim::SubmitError;
use switchtower_ids::Incarnation;
use switchtower_models::{
    TokenizerError,
    openai::{ErrorBody, RequestError},
};

/// A request that gets no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("header `{name}` is not valid: it must be {rule}")]
    Header { name: &'static str, rule: &'static str },
    #[error("rank {rank} is not served here: this worker has ranks 0 to {last}")]
    NoSuchRank { rank: u32, last: u32 },
    #[error(
        "this request is meant for life {wanted} of this worker, but it lives its life {ours}: select again"
    )]
    IncarnationMismatch { wanted: Incarnation, ours: Incarnation },
    #[error("this worker drains and takes no new requests: select another one")]
    Draining,
    #[error("the engine refuses: {0}")]
    Engine(#[from] SubmitError),
    #[error("the engine has stopped: select another worker")]
    Stopped,
    #[error("the answer cannot be written in this model's tokens: {0}")]
    Tokenizer(#[from] TokenizerError),
    #[error("this worker was told to fail (faults.fail_before_first_byte): turn that off or try again")]
    InjectedFault,
    #[error("requests are running: the prefix cache can be reset only while the engine is idle")]
    CacheInUse,
    #[error(
        "there is no `{method} {path}` here: see GET /v1/models, POST /v1/chat/completions and /v1/completions"
    )]
    NoSuchRoute { method: String, path: String },
    #[error("the worker failed inside while it prepared the answer: see its log")]
    Internal,
}

impl ApiError {
    /// Status, type and code.
    fn class(&self) -> (StatusCode, &'static str, &'static str) {
        const BAD: &str = "invalid_request_error";
        const SERVER: &str = "server_error";
        match self {
            Self::Request(error) => {
                // The body of these is their own; only the status is used.
                (StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST), BAD, "")
            }
            Self::Header { .. } => (StatusCode::BAD_REQUEST, BAD, "invalid_header"),
            Self::NoSuchRank { .. } => (StatusCode::BAD_REQUEST, BAD, "rank_not_served"),
            Self::NoSuchRoute { .. } => (StatusCode::NOT_FOUND, BAD, "not_found"),
            Self::IncarnationMismatch { .. } => (StatusCode::CONFLICT, BAD, "incarnation_mismatch"),
            Self::CacheInUse => (StatusCode::CONFLICT, BAD, "cache_in_use"),
            Self::Draining => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "worker_draining"),
            Self::Engine(SubmitError::QueueFull { .. }) => {
                (StatusCode::SERVICE_UNAVAILABLE, SERVER, "engine_queue_full")
            }
            Self::Engine(SubmitError::TooLarge { .. }) => {
                (StatusCode::BAD_REQUEST, BAD, "context_length_exceeded")
            }
            Self::Stopped => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "engine_stopped"),
            Self::InjectedFault => (StatusCode::INTERNAL_SERVER_ERROR, SERVER, "injected_fault"),
            Self::Engine(_) | Self::Tokenizer(_) | Self::Internal => {
                (StatusCode::INTERNAL_SERVER_ERROR, SERVER, "internal_error")
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, kind, code) = self.class();
        let body = match &self {
            Self::Request(error) => error.body(),
            other => ErrorBody::new(&other.to_string(), kind, None, Some(code)),
        };
        let mut response = (status, Json(body)).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
