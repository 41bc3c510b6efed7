//! Looks at an engine over HTTP: whether it is well, whether it serves the model, how loaded it is. Untrusted: every
//! answer is bounded in size and time, and what it says is read as far as it can be believed. Decides nothing; called by
//! the agent.

use super::{EngineAgentConfig, metrics::EngineMetrics};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use serde::Deserialize;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use switchtower_runtime::http_client::{HttpClient, HttpClientOptions, http_client};
use tokio::time::timeout;

const HEALTH: &str = "/health";
const MODELS: &str = "/v1/models";
const METRICS: &str = "/metrics";

/// Largest answer that is read. vLLM's metrics have some hundred kilobytes.
const BODY_BYTES_MAX: usize = 8 << 20;

/// Names of models that an error shows.
const NAMES_SHOWN: usize = 8;

/// Letters of each name that an error shows.
const NAME_CHARS_SHOWN: usize = 64;

/// Why an engine is not, or not any more, one that requests can be sent to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EngineError {
    #[error("the engine at {url} cannot be reached: start it, or correct engine_agent.url")]
    Unreachable { url: String },
    #[error(
        "the engine at {url} does not answer `GET {path}` within {limit_ms} ms (engine_agent.check_timeout_ms)"
    )]
    Silent { url: String, path: String, limit_ms: u64 },
    #[error(
        "the engine at {url} breaks its answer to `GET {path}` off, or sends more than {BODY_BYTES_MAX} bytes"
    )]
    Broken { url: String, path: String },
    #[error(
        "the engine at {url} answers `GET {path}` with {status}: it is not well, or engine_agent.health_path is wrong"
    )]
    Unwell { url: String, path: String, status: u16 },
    #[error("the engine at {url} answers `GET {MODELS}` with something that is no list of models")]
    NoList { url: String },
    #[error(
        "the engine at {url} serves {served}, not `{model}`: start it with that name (--served-model-name), or name one \
         that it serves (engine_agent.model)"
    )]
    OtherModel { url: String, served: String, model: String },
}

impl EngineError {
    /// Whether the engine itself says that requests for the model are in vain: then it needs no second try.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::OtherModel { .. })
    }
}

/// An engine, and how it is asked.
pub(super) struct Engine {
    client: HttpClient,
    url: String,
    model: String,
    health_path: Option<String>,
    limit: Duration,
    /// It has answered 404 at the usual health path, and has a list of models instead.
    lacks_health: AtomicBool,
    /// It has answered 404 where metrics are.
    lacks_metrics: AtomicBool,
}

struct Answer {
    status: StatusCode,
    body: Bytes,
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

impl Engine {
    pub(super) fn new(config: &EngineAgentConfig) -> Self {
        let options =
            HttpClientOptions { connect_timeout: config.check_timeout(), ..HttpClientOptions::default() };
        Self {
            client: http_client(&options),
            url: config.url.clone(),
            model: config.model.clone(),
            health_path: config.health_path.clone(),
            limit: config.check_timeout(),
            lacks_health: AtomicBool::new(false),
            lacks_metrics: AtomicBool::new(false),
        }
    }

    /// Looks once. An engine without metrics, or whose metrics fail, is well all the same.
    ///
    /// # Errors
    /// Why no requests should be sent there.
    pub(super) async fn look(&self) -> Result<EngineMetrics, EngineError> {
        let models = match self.health().await? {
            Some(models) => models,
            None => self.get(MODELS).await?,
        };
        self.check_models(&models)?;
        Ok(self.metrics().await)
    }

    /// What the engine lacked is asked for again: it may be another program now.
    pub(super) fn forget(&self) {
        self.lacks_health.store(false, Ordering::Relaxed);
        self.lacks_metrics.store(false, Ordering::Relaxed);
    }

    /// Whether it is well. Returns the list of models if that is what was asked.
    async fn health(&self) -> Result<Option<Answer>, EngineError> {
        if !self.lacks_health.load(Ordering::Relaxed) {
            let path = self.health_path.as_deref().unwrap_or(HEALTH);
            let answer = self.get(path).await?;
            if answer.status.is_success() {
                return Ok(None);
            }
            if answer.status != StatusCode::NOT_FOUND || self.health_path.is_some() {
                return Err(self.unwell(path, answer.status));
            }
        }
        let models = self.get(MODELS).await?;
        if !models.status.is_success() {
            self.lacks_health.store(false, Ordering::Relaxed);
            return Err(self.unwell(MODELS, models.status));
        }
        self.lacks_health.store(true, Ordering::Relaxed);
        Ok(Some(models))
    }

    /// Whether it serves the model, as far as it says: not every engine has a list, and not everybody may read it.
    fn check_models(&self, answer: &Answer) -> Result<(), EngineError> {
        match answer.status {
            status if status.is_success() => {}
            StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED
            | StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN => return Ok(()),
            status => return Err(self.unwell(MODELS, status)),
        }
        let list: ModelList = serde_json::from_slice(&answer.body)
            .map_err(|_| EngineError::NoList { url: self.url.clone() })?;
        if list.data.iter().any(|model| model.id == self.model) {
            return Ok(());
        }
        let (url, served, model) = (self.url.clone(), shown(&list), self.model.clone());
        Err(EngineError::OtherModel { url, served, model })
    }

    async fn metrics(&self) -> EngineMetrics {
        if self.lacks_metrics.load(Ordering::Relaxed) {
            return EngineMetrics::default();
        }
        match self.get(METRICS).await {
            Ok(answer) if answer.status.is_success() => {
                EngineMetrics::parse(&String::from_utf8_lossy(&answer.body))
            }
            Ok(answer) => {
                self.lacks_metrics.store(answer.status == StatusCode::NOT_FOUND, Ordering::Relaxed);
                EngineMetrics::default()
            }
            Err(_) => EngineMetrics::default(),
        }
    }

    async fn get(&self, path: &str) -> Result<Answer, EngineError> {
        let silent = || EngineError::Silent {
            url: self.url.clone(),
            path: path.to_owned(),
            limit_ms: u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX),
        };
        timeout(self.limit, self.answer(path)).await.map_err(|_| silent())?
    }

    async fn answer(&self, path: &str) -> Result<Answer, EngineError> {
        let unreachable = || EngineError::Unreachable { url: self.url.clone() };
        let broken = || EngineError::Broken { url: self.url.clone(), path: path.to_owned() };
        let request = Request::get(format!("{}{path}", self.url)).body(Full::default());
        let response = self.client.request(request.map_err(|_| unreachable())?).await;
        let (head, body) = response.map_err(|_| unreachable())?.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| broken())?;
        Ok(Answer { status: head.status, body: body.to_bytes() })
    }

    fn unwell(&self, path: &str, status: StatusCode) -> EngineError {
        EngineError::Unwell { url: self.url.clone(), path: path.to_owned(), status: status.as_u16() }
    }
}

/// The names of the models, as many as a line has room for.
fn shown(list: &ModelList) -> String {
    let name = |model: &Model| {
        let name = model.id.chars().take(NAME_CHARS_SHOWN).flat_map(char::escape_debug);
        format!("`{}`", name.collect::<String>())
    };
    let names: Vec<String> = list.data.iter().take(NAMES_SHOWN).map(name).collect();
    match list.data.len().saturating_sub(NAMES_SHOWN) {
        _ if names.is_empty() => "no model".to_owned(),
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
