//! An engine as the agent sees it: a server with OpenAI's API, health and metrics, that can be killed, hung and changed.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unreachable_pub, reason = "shared by several test crates")]

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{future::pending, net::SocketAddr, sync::Arc, time::Duration};
use switchtower_runtime::{
    TaskGroup,
    http_server::{HttpServerOptions, serve},
};
use tokio::net::TcpListener;

/// What the engine does. Changed at any time.
#[derive(Clone, Debug)]
pub struct Manners {
    /// The name of its model; `None` for an engine that has no list of models.
    pub model: Option<String>,
    /// What `/health` answers.
    pub health: StatusCode,
    /// What `/metrics` answers; 404 without.
    pub metrics: Option<String>,
    /// It takes requests of every kind and never answers.
    pub hangs: bool,
}

#[derive(Debug)]
struct Shared {
    manners: Mutex<Manners>,
    /// The paths that were asked for, in order.
    asked: Mutex<Vec<String>>,
}

/// A running engine; dropping it is a crash.
pub struct FakeEngine {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    tasks: TaskGroup,
}

impl FakeEngine {
    /// On a free port, well, without metrics.
    pub async fn start(model: &str) -> Self {
        let manners =
            Manners { model: Some(model.to_owned()), health: StatusCode::OK, metrics: None, hangs: false };
        let shared = Arc::new(Shared { manners: Mutex::new(manners), asked: Mutex::default() });
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), shared).await
    }

    async fn at(address: SocketAddr, shared: Arc<Shared>) -> Self {
        let listener = TcpListener::bind(address).await.expect("the port is free");
        let address = listener.local_addr().expect("an address");
        let tasks = TaskGroup::new();
        let (drain, drain_idle) = (Duration::ZERO, Duration::ZERO);
        let options = HttpServerOptions { drain, drain_idle, ..HttpServerOptions::default() };
        let server = serve(listener, router(Arc::clone(&shared)), options, &tasks, tasks.shutdown_token());
        tasks.spawn_named("engine", async move {
            server.await;
        });
        Self { address, shared, tasks }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn change(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.shared.manners.lock());
    }

    /// How often a path was asked for.
    pub fn asked(&self, path: &str) -> usize {
        self.shared.asked.lock().iter().filter(|asked| *asked == path).count()
    }

    /// Breaks every connection and frees the port; what comes back is started again with the same manners.
    pub async fn kill(self) -> DeadEngine {
        self.tasks.shutdown(Duration::from_secs(5)).await;
        DeadEngine { address: self.address, shared: Arc::clone(&self.shared) }
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.tasks.shutdown_token().cancel();
    }
}

/// An engine that was killed.
pub struct DeadEngine {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl DeadEngine {
    pub async fn restart(self) -> FakeEngine {
        FakeEngine::at(self.address, self.shared).await
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/v1/models", get(models))
        .route("/metrics", get(metrics))
        .route("/v1/completions", post(completion))
        .with_state(shared)
}

impl Shared {
    /// A request has come. Never returns where the engine hangs.
    async fn asked(&self, path: &str) -> Manners {
        self.asked.lock().push(path.to_owned());
        let manners = self.manners.lock().clone();
        if manners.hangs {
            pending::<()>().await;
        }
        manners
    }
}

async fn health(State(shared): State<Arc<Shared>>) -> StatusCode {
    shared.asked("/health").await.health
}

async fn models(State(shared): State<Arc<Shared>>) -> Response {
    match shared.asked("/v1/models").await.model {
        Some(model) => {
            Json(json!({"object": "list", "data": [{"id": model, "object": "model"}]})).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    match shared.asked("/metrics").await.metrics {
        Some(metrics) => metrics.into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// As engines answer that know nothing of routers: no row, no cached tokens.
async fn completion(State(shared): State<Arc<Shared>>, Json(request): Json<Value>) -> Response {
    shared.asked("/v1/completions").await;
    Json(json!({
        "id": "cmpl-1", "object": "text_completion", "created": 1, "model": request["model"],
        "choices": [{"index": 0, "text": " ok", "finish_reason": "stop", "logprobs": null}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    }))
    .into_response()
}
