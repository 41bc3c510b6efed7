//! What is wrong with a request, and the OpenAI-shaped body that says so. Never holds prompt text.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A request that is refused before it is routed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", param.as_ref().map(|param| format!("{param}: ")).unwrap_or_default())]
pub struct RequestError {
    /// Decides the HTTP status.
    pub kind: RequestErrorKind,
    /// Path of the field, like `messages[2].content`.
    pub param: Option<String>,
    /// Stable name of the mistake, like `context_length_exceeded`.
    pub code: Cow<'static, str>,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Kinds of refusal, one HTTP status each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestErrorKind {
    /// 400: the request is malformed or asks for what cannot be.
    Invalid,
    /// 404: there is no such model.
    NotFound,
    /// 413: the body is larger than the configured limit.
    TooLarge,
    /// 415: the body is not JSON by its content type.
    UnsupportedMediaType,
}

impl RequestError {
    /// An invalid request, with the field where one is to blame.
    pub fn invalid(
        param: impl Into<Option<String>>,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind: RequestErrorKind::Invalid,
            param: param.into(),
            code: code.into(),
            message: message.into(),
        }
    }

    /// No model has this name.
    #[must_use]
    pub fn model_not_found(model: &str) -> Self {
        let shown: String = model.chars().take(64).collect();
        Self {
            kind: RequestErrorKind::NotFound,
            param: Some("model".to_owned()),
            code: "model_not_found".into(),
            message: format!("there is no model `{shown}` here; GET /v1/models lists those that there are"),
        }
    }

    /// The body is over the limit.
    #[must_use]
    pub fn body_too_large(bytes_max: usize) -> Self {
        Self {
            kind: RequestErrorKind::TooLarge,
            param: None,
            code: "request_too_large".into(),
            message: format!("the body is larger than {bytes_max} bytes (max_body_bytes): send less"),
        }
    }

    /// The body does not claim to be JSON.
    #[must_use]
    pub fn unsupported_media_type() -> Self {
        Self {
            kind: RequestErrorKind::UnsupportedMediaType,
            param: None,
            code: "unsupported_media_type".into(),
            message: "the body must be JSON: send `content-type: application/json`".to_owned(),
        }
    }

    /// The HTTP status: 400, 404, 413 or 415.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self.kind {
            RequestErrorKind::Invalid => 400,
            RequestErrorKind::NotFound => 404,
            RequestErrorKind::TooLarge => 413,
            RequestErrorKind::UnsupportedMediaType => 415,
        }
    }

    /// The body for the client.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        ErrorBody::new(&self.to_string(), "invalid_request_error", self.param.clone(), Some(&self.code))
    }

    pub(super) fn missing(param: String, expected: &str) -> Self {
        Self::invalid(param, "missing_required_parameter", format!("is required: give {expected}"))
    }

    pub(super) fn wrong_type(param: &str, expected: &str, found: &serde_json::Value) -> Self {
        let message = format!("must be {expected}, not {}", super::fields::kind(found));
        Self::invalid(param.to_owned(), "invalid_type", message)
    }

    pub(crate) fn wrong_value(param: &str, message: impl Into<String>) -> Self {
        Self::invalid(param.to_owned(), "invalid_value", message)
    }
}

/// The body of every error answer: `{"error": {…}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The one member.
    pub error: ErrorDetail,
}

/// What went wrong, in OpenAI's shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// For people.
    pub message: String,
    /// Class, like `invalid_request_error`, `rate_limit_error`, `server_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The field to blame, or null.
    pub param: Option<String>,
    /// Stable name, or null.
    pub code: Option<String>,
}

impl ErrorBody {
    /// A body from its four members.
    #[must_use]
    pub fn new(message: &str, kind: &str, param: Option<String>, code: Option<&str>) -> Self {
        let (message, kind) = (message.to_owned(), kind.to_owned());
        Self { error: ErrorDetail { message, kind, param, code: code.map(str::to_owned) } }
    }
}
