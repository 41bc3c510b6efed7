//! The request as a worker gets it: the client's own bytes, never written anew, and only the headers that are meant for
//! workers. Credentials and cookies of the client stay here unless configured (field report B146). Called by `dispatch`,
//! once per attempt.

use crate::{prompt::Endpoint, request_id::REQUEST_ID};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use http_body_util::Full;
use switchtower_scheduling::Selection;
use switchtower_selection::wire;

const INCARNATION: HeaderName = HeaderName::from_static(wire::INCARNATION_HEADER);
const RANK: HeaderName = HeaderName::from_static(wire::RANK_HEADER);

/// Headers of the client that workers see as they are.
const PASSED_ON: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    header::ACCEPT,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// What is the same for every attempt.
pub(crate) struct Outbound {
    endpoint: Endpoint,
    headers: HeaderMap,
    body: Bytes,
}

impl Outbound {
    /// The request with `body`, as its client sent it with `headers`.
    pub(crate) fn new(endpoint: Endpoint, headers: &HeaderMap, body: Bytes) -> Self {
        let mut passed = HeaderMap::new();
        for name in &PASSED_ON {
            passed.extend(headers.get_all(name).iter().map(|value| (name.clone(), value.clone())));
        }
        passed.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        Self { endpoint, headers: passed, body }
    }

    /// The same under the request's name.
    pub(crate) fn with_id(mut self, id: &HeaderValue) -> Self {
        self.headers.insert(REQUEST_ID, id.clone());
        self
    }

    /// The same with the client's credentials.
    pub(crate) fn with_authorization(mut self, headers: &HeaderMap) -> Self {
        if let Some(authorization) = headers.get(header::AUTHORIZATION) {
            self.headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        self
    }

    /// The request for the worker that was chosen, and for no other life of it.
    ///
    /// # Errors
    /// The worker's endpoint is no URL.
    pub(crate) fn request(&self, selection: &Selection) -> Result<Request<Full<Bytes>>, http::Error> {
        let url = format!("{}{}", selection.endpoint.trim_end_matches('/'), self.endpoint.path());
        let mut request = Request::post(url)
            .header(INCARNATION, selection.incarnation.to_string())
            .header(RANK, selection.row.rank.0)
            .body(Full::new(self.body.clone()))?;
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b146_only_what_is_meant_for_workers_is_passed_on() {
        let client = [
            ("authorization", "Bearer secret"),
            ("cookie", "c=1"),
            ("x-forwarded-for", "10.0.0.1"),
            ("accept", "text/event-stream"),
            ("traceparent", "00-1-2-01"),
            ("x-switchtower-pin", "1"),
        ];
        let client =
            client.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let client = HeaderMap::from_iter(client);
        let outbound =
            Outbound::new(Endpoint::Chat, &client, Bytes::new()).with_id(&HeaderValue::from_static("id"));
        let mut names: Vec<_> = outbound.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "content-type", "traceparent", "x-request-id"]);
        let outbound = outbound.with_authorization(&client);
        assert_eq!(outbound.headers.get(header::AUTHORIZATION).unwrap(), "Bearer secret");
    }
}
