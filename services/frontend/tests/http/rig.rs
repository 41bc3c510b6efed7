//! A front end with its cluster, in one process, and the means to ask it and to wait for what it says.

use crate::fake_worker::FakeWorker;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::{
    future::Future,
    net::SocketAddr,
    time::{Duration, Instant},
};
use switchtower_cluster::DistributedRuntime;
use switchtower_frontend::HttpFrontend;
use switchtower_ids::{Incarnation, Stage, WorkerId};
use switchtower_models::EngineConfig;
use switchtower_runtime::http_client::{HttpClient, HttpClientOptions, http_client};
use switchtower_selection::{
    SelectionHandle,
    records::{RECORD_VERSION, WorkerRecord},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

pub(crate) const MODEL: &str = "switchtower-demo";
pub(crate) const COMPLETIONS: &str = "/v1/completions";
pub(crate) const CHAT: &str = "/v1/chat/completions";

/// Ends a test that hangs; far longer than anything takes.
const HANG: Duration = Duration::from_secs(60);

/// A running front end.
pub(crate) struct Rig {
    pub(crate) runtime: DistributedRuntime,
    pub(crate) address: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) selection: SelectionHandle,
    client: HttpClient,
}

/// An answer, as far as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The connection broke before the end.
    pub(crate) broken: bool,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {:?}", self.body))
    }

    /// The error's code, of a body in OpenAI's shape.
    pub(crate) fn code(&self) -> String {
        let error = &self.json()["error"];
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
        assert!(error["type"].is_string() && error.get("param").is_some(), "{error}");
        error["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The data of all events.
    pub(crate) fn events(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.body).into_owned();
        text.split("\n\n")
            .filter_map(|event| event.trim().strip_prefix("data: "))
            .map(str::to_owned)
            .collect()
    }
}

impl Rig {
    /// A front end over these workers, numbered from 1, with the default configuration.
    pub(crate) async fn over(workers: &[FakeWorker], runtime: DistributedRuntime) -> Self {
        Self::configured(workers, runtime, |_| ()).await
    }

    /// The same with another configuration.
    pub(crate) async fn configured(
        workers: &[FakeWorker],
        runtime: DistributedRuntime,
        configure: impl FnOnce(&mut EngineConfig),
    ) -> Self {
        let addresses: Vec<_> = workers.iter().map(|worker| worker.address).collect();
        let rig = Self::start(HttpFrontend::default(), runtime, configure).await;
        for (address, id) in addresses.into_iter().zip(1..) {
            rig.register(id, address).await;
        }
        rig.serves(workers.len()).await;
        rig
    }

    /// A front end without workers.
    pub(crate) async fn start(
        frontend: HttpFrontend,
        runtime: DistributedRuntime,
        configure: impl FnOnce(&mut EngineConfig),
    ) -> Self {
        let mut config =
            EngineConfig { http: SocketAddr::from(([127, 0, 0, 1], 0)), ..EngineConfig::default() };
        config.router.seed = 1;
        configure(&mut config);
        let bound = frontend.bind(runtime.clone(), config).await.unwrap();
        let (address, admin, selection) = (bound.local_addr(), bound.admin_addr(), bound.selection());
        runtime.tasks().spawn_named("front end", bound.serve());
        Self { runtime, address, admin, selection, client: http_client(&HttpClientOptions::default()) }
    }

    /// Puts a worker into discovery.
    pub(crate) async fn register(&self, id: u64, address: SocketAddr) {
        self.register_with(id, address, |_| ()).await;
    }

    /// The same with another record.
    pub(crate) async fn register_with(
        &self,
        id: u64,
        address: SocketAddr,
        change: impl FnOnce(&mut WorkerRecord),
    ) {
        let mut record = WorkerRecord {
            version: RECORD_VERSION,
            worker_id: WorkerId(id),
            incarnation: Incarnation(0xABC0 + id),
            endpoint: format!("http://{address}"),
            model: MODEL.to_owned(),
            routing_group: "default".to_owned(),
            stage: Stage::Aggregated,
            ranks: 1,
            block_size: 16,
            total_blocks: None,
            max_batch_tokens: None,
            taints: [format!("t{id}")].into(),
            draining: false,
            kv_events: true,
        };
        change(&mut record);
        let json = record.to_json().unwrap().into();
        self.runtime.discovery().put(&record.key(), json, None).await.unwrap();
    }

    /// Waits until so many workers take requests.
    pub(crate) async fn serves(&self, workers: usize) {
        let all = self
            .selection
            .wait_for_models(|models| models.iter().map(|model| model.open_rows).sum::<usize>() == workers);
        assert!(in_time(all).await);
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(self.request("GET", path).body(Full::default()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, json: &Value) -> Reply {
        self.post_with(path, json, &[]).await
    }

    pub(crate) async fn post_with(&self, path: &str, json: &Value, headers: &[(&str, &str)]) -> Reply {
        self.post_bytes(path, json.to_string().into(), headers).await
    }

    pub(crate) async fn post_bytes(&self, path: &str, body: Bytes, headers: &[(&str, &str)]) -> Reply {
        let mut request = self.request("POST", path).body(Full::new(body)).unwrap();
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        self.send(request).await
    }

    /// Paths of the admin API go to its own address.
    fn request(&self, method: &str, path: &str) -> http::request::Builder {
        let is_admin = path.starts_with("/admin/") || path.ends_with('z');
        let address = self.admin.filter(|_| is_admin).unwrap_or(self.address);
        Request::builder().method(method).uri(format!("http://{address}{path}"))
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Reply {
        let response = in_time(self.client.request(request)).await.unwrap();
        let (head, mut rest) = response.into_parts();
        let (mut body, mut broken) = (Vec::new(), false);
        while let Some(frame) = in_time(rest.frame()).await {
            match frame {
                Ok(frame) => body.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        Reply { status: head.status, headers: head.headers, body: body.into(), broken }
    }

    /// A raw connection on which a request has been written.
    pub(crate) async fn raw(&self, path: &str, json: &Value) -> TcpStream {
        let body = json.to_string();
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        stream
    }

    /// The sum of a metric's samples whose line holds all of `labels`.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.get("/metrics").await;
        let text = String::from_utf8(text.body.to_vec()).unwrap();
        let is_it = |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        };
        text.lines().filter(is_it).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// Requests that ended with `outcome`.
    pub(crate) async fn ended(&self, outcome: &str) -> f64 {
        self.metric("switchtower_requests_total", &[&format!("outcome=\"{outcome}\"")]).await
    }

    /// Waits until nothing is booked and nothing is in flight: design invariant 2.
    pub(crate) async fn at_rest(&self) {
        until("nothing in flight", || async {
            let booked: usize =
                self.selection.loads().await.iter().map(|load| load.reservations + load.waiting).sum();
            booked == 0 && self.metric("switchtower_requests_in_flight", &[]).await == 0.0
        })
        .await;
    }

    /// Waits until so many requests hold a reservation.
    pub(crate) async fn booked(&self, count: usize) {
        until("bookings", || async {
            self.selection.loads().await.iter().map(|load| load.reservations).sum::<usize>() == count
        })
        .await;
    }
}

/// A small completion.
pub(crate) fn completion(stream: bool) -> Value {
    json!({"model": MODEL, "prompt": [5, 6, 7], "max_tokens": 100, "stream": stream})
}

/// A small chat.
pub(crate) fn chat(stream: bool) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "stream": stream})
}

/// Waits until `condition` holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let began = Instant::now();
    while !condition().await {
        assert!(began.elapsed() < HANG, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Fails instead of hanging.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(HANG, future).await.expect("the test hangs")
}

/// A cluster in memory.
pub(crate) fn cluster() -> DistributedRuntime {
    DistributedRuntime::in_memory("test")
}
