//! Agents of real engines and a front end, in one process: engines that know nothing of routers get requests as workers
//! do, by what they are assumed to have cached, and none once they are gone.

#[path = "../../services/worker/tests/support/engine.rs"]
mod engine;

use bytes::Bytes;
use engine::FakeEngine;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::json;
use std::{collections::BTreeSet, net::SocketAddr, time::Duration};
use switchtower_cluster::DistributedRuntime;
use switchtower_frontend::HttpFrontend;
use switchtower_models::EngineConfig;
use switchtower_runtime::http_client::{HttpClient, HttpClientOptions, http_client};
use switchtower_selection::{SelectionHandle, SelectionOptions};
use switchtower_worker::{EngineAgent, EngineAgentConfig};

const MODEL: &str = "switchtower-demo";

/// Longer than anything takes: a wait that reaches it has failed.
const HANG: Duration = Duration::from_secs(60);

/// A front end over engines with an agent each, numbered from 1.
struct Yard {
    address: SocketAddr,
    selection: SelectionHandle,
    runtime: DistributedRuntime,
    client: HttpClient,
}

impl Yard {
    async fn over(engines: &[FakeEngine]) -> Self {
        let runtime = DistributedRuntime::in_memory("yard");
        let config = EngineConfig { http: SocketAddr::from(([127, 0, 0, 1], 0)), ..EngineConfig::default() };
        let options =
            SelectionOptions { inhibition: Duration::from_millis(20), ..SelectionOptions::default() };
        let frontend = HttpFrontend::default().selection_options(options);
        let frontend = frontend.bind(runtime.clone(), config).await.unwrap();
        let (address, selection) = (frontend.local_addr(), frontend.selection());
        runtime.tasks().spawn_named("front end", frontend.serve());
        for (engine, worker_id) in engines.iter().zip(1..) {
            let (url, model) = (engine.url(), MODEL.to_owned());
            let quick = EngineAgentConfig { check_interval_ms: 20, failures_max: 2, ..Default::default() };
            let config = EngineAgentConfig { worker_id, url, model, drain_grace_ms: 0, ..quick };
            let agent = EngineAgent::build(config, runtime.clone()).unwrap();
            let stop = runtime.shutdown_token();
            runtime.tasks().spawn_named(format!("agent {worker_id}"), async move {
                agent.run(&stop).await.unwrap();
            });
        }
        let yard = Self { address, selection, runtime, client: http_client(&HttpClientOptions::default()) };
        yard.serves(engines.len()).await;
        yard
    }

    async fn serves(&self, engines: usize) {
        let joined = self
            .selection
            .wait_for_models(|models| models.iter().map(|model| model.workers).sum::<usize>() == engines);
        assert!(tokio::time::timeout(HANG, joined).await.expect("the fleet is as it should be"));
    }

    /// The worker that a completion came from.
    async fn complete(&self, prompt: &str) -> String {
        let body = json!({"model": MODEL, "prompt": prompt, "max_tokens": 5}).to_string();
        let request = Request::post(format!("http://{}/v1/completions", self.address))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let answer =
            tokio::time::timeout(HANG, self.client.request(request)).await.expect("an answer").unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        assert_eq!(head.status, StatusCode::OK, "{body:?}");
        assert!(body.starts_with(b"{") && body.ends_with(b"}"), "the engine's own answer");
        head.headers["x-switchtower-worker"].to_str().unwrap().to_owned()
    }

    async fn stop(self) {
        assert_eq!(self.runtime.tasks().shutdown(HANG).await, Vec::<String>::new());
    }
}

fn prompt(number: usize) -> String {
    (0..200).map(|word| format!("prompt{number} word{word} ")).collect()
}

#[tokio::test]
async fn requests_with_one_prompt_go_to_one_engine_and_elsewhere_once_it_is_dead() {
    let mut engines = vec![FakeEngine::start(MODEL).await, FakeEngine::start(MODEL).await];
    let yard = Yard::over(&engines).await;
    let mut first = Vec::new();
    for number in 0..12 {
        first.push(yard.complete(&prompt(number)).await);
    }
    assert_eq!(first.iter().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(["1/0", "2/0"]));
    for (number, worker) in first.iter().enumerate() {
        assert_eq!(
            &yard.complete(&prompt(number)).await,
            worker,
            "prompt {number} is assumed to be cached there"
        );
    }

    let dead = engines.remove(0).kill().await;
    for number in 0..12 {
        assert_eq!(yard.complete(&prompt(number)).await, "2/0", "before and after the death is known");
    }
    yard.serves(1).await;
    assert_eq!(yard.complete(&prompt(0)).await, "2/0");

    let engine = dead.restart().await;
    yard.serves(2).await;
    let before = engine.asked("/v1/completions");
    let back = async {
        let mut number = 100;
        while engine.asked("/v1/completions") == before {
            yard.complete(&prompt(number)).await;
            number += 1;
        }
    };
    tokio::time::timeout(HANG, back).await.expect("the engine that came back gets requests again");
    yard.stop().await;
}
