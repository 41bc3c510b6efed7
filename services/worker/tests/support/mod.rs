//! A worker on loopback, a cluster in memory and a real HTTP client, for the tests beside this folder.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unreachable_pub, reason = "shared by several test crates")]

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode, body::Incoming};
use serde_json::{Value, json};
use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};
use switchtower_cluster::{
    DistributedRuntime,
    memory::{MemoryCluster, MemoryConnection},
};
use switchtower_engine_sim::EngineParameters;
use switchtower_models::{Model, ModelSource};
use switchtower_runtime::http_client::{HttpClient, HttpClientOptions, http_client};
use switchtower_worker::{RunningWorker, SimulatedWorker, SimulatedWorkerConfig};

/// The built-in model, loaded once.
pub static MODEL: LazyLock<Arc<Model>> =
    LazyLock::new(|| Arc::new(Model::load(&ModelSource::BuiltIn).expect("the built-in model loads")));

/// Longer than anything here takes; only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Bench {
    pub cluster: MemoryCluster,
    /// The worker's own.
    pub connection: MemoryConnection,
    pub runtime: DistributedRuntime,
    pub worker: RunningWorker,
    pub client: HttpClient,
}

/// Fast enough that no test waits for the engine.
pub fn fast() -> SimulatedWorkerConfig {
    SimulatedWorkerConfig {
        worker_id: 7,
        speed: 200.0,
        load_report_ms: 20,
        ..SimulatedWorkerConfig::default()
    }
}

/// So slow that an answer never ends while a test looks.
pub fn endless() -> SimulatedWorkerConfig {
    let engine = EngineParameters { base_us: 20_000.0, ..EngineParameters::default() };
    SimulatedWorkerConfig { speed: 1.0, engine, ..fast() }
}

impl Bench {
    pub async fn start(config: SimulatedWorkerConfig) -> Self {
        let cluster = MemoryCluster::new("test");
        let connection = cluster.connect();
        let runtime = connection.runtime();
        let worker =
            SimulatedWorker::build(config, Arc::clone(&MODEL), runtime.clone()).await.expect("it builds");
        let worker = worker.start().await.expect("it starts");
        Self { cluster, connection, runtime, worker, client: http_client(&HttpClientOptions::default()) }
    }

    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        let mut request = Request::post(format!("{}{path}", self.worker.endpoint()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.header("content-type", "application/json").body(Full::new(body.into())).expect("a request")
    }

    pub async fn send(&self, path: &str, body: &Value) -> Response<Incoming> {
        let request = self.post(path, &[], body.to_string());
        self.client.request(request).await.expect("an answer")
    }

    /// The whole answer as JSON.
    pub async fn ask(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        json_of(self.send(path, body).await).await
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        let request = Request::get(format!("{}{path}", self.worker.endpoint())).body(Full::default());
        json_of(self.client.request(request.expect("a request")).await.expect("an answer")).await
    }
}

pub async fn json_of(response: Response<Incoming>) -> (StatusCode, Value) {
    let status = response.status();
    let body = response.into_body().collect().await.expect("a whole body").to_bytes();
    (status, serde_json::from_slice(&body).expect("JSON"))
}

/// The data of every event of a whole stream.
pub async fn events_of(response: Response<Incoming>) -> Vec<String> {
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.headers()["content-type"].to_str().expect("text").starts_with("text/event-stream"));
    let body = response.into_body().collect().await.expect("a whole body").to_bytes();
    let text = String::from_utf8(body.to_vec()).expect("UTF-8");
    assert!(text.ends_with("\n\n"));
    let event = |event: &str| event.strip_prefix("data: ").expect("a data line").to_owned();
    text.trim_end().split("\n\n").map(event).collect()
}

pub fn chat(text: &str) -> Value {
    json!({"model": "switchtower-demo", "messages": [{"role": "user", "content": text}]})
}

/// `body` with more fields.
pub fn with(mut body: Value, more: Value) -> Value {
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    body
}

/// A text of many different words.
pub fn long_text(words: usize) -> String {
    (0..words).map(|at| format!("word{at} ")).collect()
}

/// Waits until `holds`; fails with `what` when it never does.
pub async fn until(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "never: {what}");
}
