//! Reading a request's body within its limits, whether its length is announced or not. The framework's own limit is off
//! (`routes`), so this is the only one (field report B99). A body that is too large is read on and thrown away, within
//! bounds, so that the client hears why instead of a reset connection.

use crate::refusal::Refusal;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use std::time::Duration;
use switchtower_models::openai::{RequestError, RequestErrorKind};
use tokio::time::{Instant, timeout_at};

/// How much, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    pub(crate) bytes_max: usize,
    pub(crate) read_ms: u64,
}

/// The whole body.
///
/// # Errors
/// 415 for what is not JSON by its own account, or compressed; 413 beyond the limit, 408 when it does not come in time, and a refusal for nobody when the client broke it off.
pub(crate) async fn read(body: Body, headers: &HeaderMap, limits: BodyLimits) -> Result<Bytes, Refusal> {
    if let Err(error) = check_media_type(headers) {
        return Err(turned_away(body, headers, limits, error).await);
    }
    let announced = announced_bytes(headers);
    if announced.is_some_and(|bytes| bytes > limits.bytes_max as u64) {
        return Err(too_large(body, headers, limits).await);
    }
    let deadline = Instant::now() + Duration::from_millis(limits.read_ms);
    let mut body = body;
    let mut whole = Gathered::default();
    while let Some(chunk) = next(&mut body, deadline, limits).await? {
        if whole.len() + chunk.len() > limits.bytes_max {
            drop(whole);
            return Err(too_large(body, headers, limits).await);
        }
        whole.push(chunk);
    }
    Ok(whole.into_bytes())
}

/// Reads and forgets what is left of a body, so that a refusal can be read by a client that is still sending; up to as
/// much again as the limit, since some clients never stop.
pub(crate) async fn discard(mut body: Body, limits: BodyLimits) {
    let deadline = Instant::now() + Duration::from_millis(limits.read_ms);
    let mut discarded = 0_usize;
    while let Ok(Some(chunk)) = next(&mut body, deadline, limits).await {
        discarded = discarded.saturating_add(chunk.len());
        if discarded > limits.bytes_max {
            return;
        }
    }
}

/// Refuses a body that is not JSON by its own account, or compressed.
///
/// # Errors
/// 415.
fn check_media_type(headers: &HeaderMap) -> Result<(), RequestError> {
    let coding = headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes());
    if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
        return Err(RequestError {
            kind: RequestErrorKind::UnsupportedMediaType,
            param: Some("content-encoding".to_owned()),
            code: "unsupported_content_encoding".into(),
            message: "compressed bodies are not taken: send the JSON as it is".to_owned(),
        });
    }
    match headers.get(header::CONTENT_TYPE).map(|value| value.to_str()) {
        None => Ok(()),
        Some(Ok(media_type)) if is_json(media_type) => Ok(()),
        Some(_) => Err(RequestError::unsupported_media_type()),
    }
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

async fn too_large(body: Body, headers: &HeaderMap, limits: BodyLimits) -> Refusal {
    tracing::info!(bytes_max = limits.bytes_max, "a request's body is over the limit");
    turned_away(body, headers, limits, RequestError::body_too_large(limits.bytes_max)).await
}

/// The refusal of a request whose body is not wanted.
async fn turned_away(body: Body, headers: &HeaderMap, limits: BodyLimits, error: RequestError) -> Refusal {
    // A client that waits for permission to send gets the answer instead.
    if !headers.contains_key(header::EXPECT) {
        discard(body, limits).await;
    }
    error.into()
}

fn announced_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn next(body: &mut Body, deadline: Instant, limits: BodyLimits) -> Result<Option<Bytes>, Refusal> {
    loop {
        match timeout_at(deadline, body.frame()).await {
            Err(_) => return Err(Refusal::body_timeout(limits.read_ms)),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(Refusal::body_broken()),
            // Trailers carry nothing that is wanted.
            Ok(Some(Ok(frame))) => {
                if let Ok(chunk) = frame.into_data() {
                    return Ok(Some(chunk));
                }
            }
        }
    }
}

/// Chunks put together; a single one is not copied.
#[derive(Default)]
struct Gathered {
    first: Bytes,
    all: BytesMut,
}

impl Gathered {
    fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    fn push(&mut self, chunk: Bytes) {
        if self.len() == 0 {
            self.first = chunk;
            return;
        }
        let first = std::mem::take(&mut self.first);
        self.all.extend_from_slice(&first);
        self.all.extend_from_slice(&chunk);
    }

    fn into_bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt, stream};
    use http::{HeaderValue, StatusCode};
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    const LIMITS: BodyLimits = BodyLimits { bytes_max: 10, read_ms: 60_000 };

    fn chunked(chunks: &'static [&'static str]) -> Body {
        Body::from_stream(
            stream::iter(chunks).map(|chunk| Ok::<_, Infallible>(Bytes::from_static(chunk.as_bytes()))),
        )
    }

    #[tokio::test]
    async fn b99_the_limit_is_the_limit_with_and_without_an_announced_length() {
        let whole = read(chunked(&["12345", "6789", "0"]), &HeaderMap::new(), LIMITS).await;
        assert_eq!(whole.unwrap(), "1234567890");
        let refusal = read(chunked(&["12345", "6789", "01"]), &HeaderMap::new(), LIMITS).await.unwrap_err();
        assert_eq!(refusal.status(), StatusCode::PAYLOAD_TOO_LARGE);
        let headers = HeaderMap::from_iter([(header::CONTENT_LENGTH, HeaderValue::from_static("11"))]);
        let refusal = read(Body::from("12345678901"), &headers, LIMITS).await.unwrap_err();
        assert_eq!(refusal.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn b99_a_body_that_never_ends_is_left() {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let endless = stream::repeat_with(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Bytes::from_static(b"abc"))
        });
        let refusal = read(Body::from_stream(endless), &HeaderMap::new(), LIMITS).await.unwrap_err();
        assert_eq!(refusal.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert!(sent.load(Ordering::Relaxed) < 12);
    }

    #[tokio::test]
    async fn a_body_that_stalls_is_refused_in_time() {
        let silent = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let limits = BodyLimits { read_ms: 1, ..LIMITS };
        let refusal = read(silent, &HeaderMap::new(), limits).await.unwrap_err();
        assert_eq!(refusal.status(), StatusCode::REQUEST_TIMEOUT);
    }

    #[test]
    fn only_json_is_taken() {
        let check =
            |name, value| check_media_type(&HeaderMap::from_iter([(name, HeaderValue::from_static(value))]));
        for good in ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"] {
            assert_eq!(check(header::CONTENT_TYPE, good), Ok(()));
        }
        for bad in ["text/plain", "application/x-www-form-urlencoded", "application/jsonl", ""] {
            assert_eq!(check(header::CONTENT_TYPE, bad).unwrap_err().status(), 415);
        }
        assert_eq!(check_media_type(&HeaderMap::new()), Ok(()));
        assert_eq!(check(header::CONTENT_ENCODING, "gzip").unwrap_err().status(), 415);
    }
}
