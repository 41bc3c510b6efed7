//! One request to one admin address, within bounds.

use super::questions::AdminRequest;
use crate::failure::Failure;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::Value;
use std::{error::Error, time::Duration};
use switchtower_runtime::http_client::{HttpClientOptions, http_client};

/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// The largest answer.
const BYTES_MAX: usize = 256 << 20;

/// The answer's JSON.
///
/// # Errors
/// Exit code 1 and one line: nobody answers, or what the router said.
pub(crate) async fn ask(url: &Uri, question: &AdminRequest) -> Result<Value, Failure> {
    let base = url.to_string();
    let base = base.trim_end_matches('/');
    let (status, body) = match tokio::time::timeout(DEADLINE, exchange(base, question)).await {
        Ok(answer) => answer.map_err(|why| {
            Failure::start(format!(
                "{base} does not answer ({why}): give a running router's admin address (--admin) as --url"
            ))
        })?,
        Err(_) => return Err(Failure::start(format!("{base} did not answer within {DEADLINE:?}"))),
    };
    let answer: Option<Value> = serde_json::from_slice(&body).ok();
    match answer {
        Some(answer) if status.is_success() => Ok(answer),
        answer => Err(refused(base, status, answer.as_ref())),
    }
}

async fn exchange(base: &str, question: &AdminRequest) -> Result<(StatusCode, Bytes), String> {
    let request = Request::builder().uri(format!("{base}{}", question.path));
    let request = match &question.body {
        None => request.body(Full::default()),
        Some(body) => request
            .method("POST")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.to_string().into())),
    };
    let request = request.map_err(|error| error.to_string())?;
    let client = http_client(&HttpClientOptions::default());
    let answer = client.request(request).await.map_err(|error| innermost(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), BYTES_MAX).collect().await;
    Ok((status, body.map_err(|error| innermost(&*error))?.to_bytes()))
}

/// The cause of it all, which says most.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error: &&dyn Error| (*error).source());
    chain.last().map(ToString::to_string).unwrap_or_default()
}

/// What the router says, in its error's shape; otherwise the status alone.
fn refused(base: &str, status: StatusCode, answer: Option<&Value>) -> Failure {
    let said = answer.and_then(|answer| answer["error"]["message"].as_str());
    let line = match said {
        Some(message) => message.split_whitespace().collect::<Vec<_>>().join(" "),
        None => format!("{base} answered {status}, which no admin address does: check --url"),
    };
    Failure::start(line)
}
