//! Every way in which a request ends without a worker's answer, as the client sees it: one status, one OpenAI-shaped
//! body, one metric label each. Must not decide when a request is refused; the corridor in `generate` does. Rejections
//! get status and label from the outcome table.

use crate::hints::PIN;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use std::borrow::Cow;
use switchtower_cluster::DiscoveryError;
use switchtower_models::openai::{ErrorBody, RequestError, RequestErrorKind};
use switchtower_scheduling::Rejection;

/// Labels of `switchtower_requests_total{outcome}` that are not in the outcome table.
pub(crate) mod label {
    /// The answer went to the client whole.
    pub(crate) const OK: &str = "ok";
    /// The client went away. The same word as in the outcome table.
    pub(crate) const CANCELLED: &str = "cancelled";
    /// The workers are over their own limits.
    pub(crate) const OVERLOAD: &str = "overload";
    /// A worker could not be reached, or was lost in the middle.
    pub(crate) const UNAVAILABLE: &str = "unavailable";
    /// A worker, or this process, made a mistake.
    pub(crate) const INTERNAL: &str = "internal";
    /// A worker was silent for too long.
    pub(crate) const TIMEOUT: &str = "timeout";
    /// A worker refused what the front end let through.
    pub(crate) const REFUSED_BY_WORKER: &str = "refused_by_worker";
    /// The request is malformed or asks for what cannot be.
    pub(crate) const INVALID_REQUEST: &str = "invalid_request";
}

/// How long a client shall wait before it tries again, in seconds.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// A request that gets no worker's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: StatusCode,
    label: &'static str,
    code: Cow<'static, str>,
    param: Option<String>,
    message: String,
}

impl Refusal {
    /// As many requests are in flight as may.
    pub(crate) fn too_many_requests(limit: usize) -> Self {
        let message = format!(
            "{limit} requests are in flight, which is the limit (max_concurrent_requests); try again later"
        );
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
    }

    /// The body did not come in time.
    pub(crate) fn body_timeout(limit_ms: u64) -> Self {
        let message = format!("the body did not arrive within {limit_ms} ms (body_read_ms): send it faster");
        Self::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message)
    }

    /// The client broke its own body off; nobody is left to read this.
    pub(crate) fn body_broken() -> Self {
        let message = "the body broke off before its end".to_owned();
        Self::new(StatusCode::BAD_REQUEST, "body_incomplete", message).labelled(label::CANCELLED)
    }

    /// This process has no descriptor, port or memory left for a connection to a worker.
    pub(crate) fn router_exhausted() -> Self {
        let message = "the router is out of file descriptors or ports: send the request to another replica, try again \
                       later, or raise the router's limit of open files (ulimit -n)";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "router_exhausted", message.to_owned())
    }

    /// No worker could be reached, or none of those reached would take it.
    pub(crate) fn unreachable(message: String) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "worker_unreachable", message).labelled(label::UNAVAILABLE)
    }

    /// The workers failed before they answered.
    pub(crate) fn worker_failed(message: String) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "worker_failed", message).labelled(label::INTERNAL)
    }

    /// A worker sent nothing for too long.
    pub(crate) fn worker_silent(limit_ms: u64) -> Self {
        let message = format!(
            "the worker sent nothing within {limit_ms} ms (first_byte_ms); try again, or ask for less"
        );
        Self::new(StatusCode::GATEWAY_TIMEOUT, "worker_timeout", message).labelled(label::TIMEOUT)
    }

    /// A mistake of this process.
    pub(crate) fn internal(what: &str) -> Self {
        let message = format!("{what} failed in the router; the log says more");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message).labelled(label::INTERNAL)
    }

    /// No such path; `known` are some that there are.
    pub(crate) fn unknown_path(path: &str, known: &str) -> Self {
        let shown: String = path.chars().take(64).collect();
        let message = format!("there is no `{shown}` here: see {known}");
        Self::new(StatusCode::NOT_FOUND, "unknown_url", message).labelled(label::INVALID_REQUEST)
    }

    /// The path exists, the method does not.
    pub(crate) fn wrong_method(method: &http::Method) -> Self {
        let message = format!("{} is not allowed here: the `allow` header says what is", method.as_str());
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
            .labelled(label::INVALID_REQUEST)
    }

    /// The router cannot serve; `why` says which condition does not hold.
    pub(crate) fn not_ready(why: String) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", why)
    }

    /// No such worker.
    pub(crate) fn unknown_worker(message: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, "worker_not_found", message).labelled(label::INVALID_REQUEST)
    }

    /// The store of records is not there, or does not take what it is given.
    pub(crate) fn discovery(error: &DiscoveryError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "discovery_unavailable", error.to_string())
            .labelled(label::UNAVAILABLE)
    }

    /// The metric label.
    pub(crate) fn label(&self) -> &'static str {
        self.label
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    fn new(status: StatusCode, code: &'static str, message: String) -> Self {
        Self { status, label: code, code: code.into(), param: None, message }
    }

    fn labelled(mut self, label: &'static str) -> Self {
        self.label = label;
        self
    }

    /// OpenAI's class of the error.
    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        let label = match error.kind {
            RequestErrorKind::Invalid => label::INVALID_REQUEST,
            RequestErrorKind::NotFound => "model_not_found",
            RequestErrorKind::TooLarge => "request_too_large",
            RequestErrorKind::UnsupportedMediaType => "unsupported_media_type",
        };
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        let message = error.to_string();
        Self { status, label, code: error.code, param: error.param, message }
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        let row = rejection.outcome().row();
        let status = StatusCode::from_u16(row.http_status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let is_pin = matches!(rejection, Rejection::ImpossiblePin { .. });
        let param = is_pin.then(|| PIN.to_owned());
        Self { status, label: row.label, code: row.label.into(), param, message: rejection.to_string() }
    }
}

/// Tells clients when to come back, where load or the fleet's state is the reason (field report B70).
pub(crate) fn advise_retry(response: &mut Response) {
    if matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        response.headers_mut().entry(header::RETRY_AFTER).or_insert(RETRY_AFTER_S);
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = ErrorBody::new(&self.message, self.kind(), self.param.clone(), Some(&self.code));
        let mut response = (self.status, axum::Json(body)).into_response();
        advise_retry(&mut response);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use switchtower_scheduling::{Exclusions, Outcome};

    async fn body_of(refusal: Refusal) -> serde_json::Value {
        let body = refusal.into_response().into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    #[tokio::test]
    async fn invariant_8_a_rejection_has_the_tables_status_code_and_label() {
        let refusal = Refusal::from(Rejection::QueueFull { waiting: 3, limit: 3 });
        let row = Outcome::QueueFull.row();
        assert_eq!((refusal.status().as_u16(), refusal.label()), (row.http_status, row.label));
        let error = &body_of(refusal).await["error"];
        assert_eq!((&error["code"], &error["type"]), (&"queue_full".into(), &"rate_limit_error".into()));
        assert!(error["param"].is_null() && error["message"].as_str().unwrap().contains("the limit is 3"));
    }

    #[test]
    fn b70_what_load_or_the_fleet_refuses_says_when_to_come_back() {
        let retry_after =
            |refusal: Refusal| refusal.into_response().headers().contains_key(header::RETRY_AFTER);
        assert!(retry_after(Refusal::too_many_requests(1)));
        assert!(retry_after(Rejection::NothingEligible(Exclusions::default()).into()));
        assert!(retry_after(Refusal::unreachable(String::new())));
        assert!(!retry_after(RequestError::model_not_found("m").into()));
    }

    #[tokio::test]
    async fn a_request_error_keeps_its_field_and_code() {
        let error = RequestError::invalid("top_p".to_owned(), "invalid_value", "must be at most 1");
        let body = body_of(error.into()).await;
        assert_eq!(body["error"]["param"], "top_p");
        assert_eq!(body["error"]["type"], "invalid_request_error");
    }
}
