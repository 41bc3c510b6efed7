//! The admin API over a cluster in memory: what it shows, what it refuses, and readiness while the cluster is away.

use crate::{
    fake_worker::{COMPLETION, FakeWorker, answer_json},
    rig::{MODEL, Rig, cluster, until},
};
use http::StatusCode;
use serde_json::{Value, json};
use switchtower_cluster::memory::MemoryCluster;
use switchtower_frontend::HttpFrontend;
use switchtower_models::EngineConfig;

fn with_admin(config: &mut EngineConfig) {
    config.admin = Some(([127, 0, 0, 1], 0).into());
}

/// A router with its admin API and one worker.
async fn with_a_worker() -> Rig {
    let runtime = cluster();
    let worker = FakeWorker::start(runtime.tasks(), |_, stream| answer_json(stream, 200, COMPLETION)).await;
    Rig::configured(&[worker], runtime, with_admin).await
}

/// The one array of an answer.
fn rows(answer: &Value, name: &str) -> Vec<Value> {
    assert_eq!(answer.as_object().map(serde_json::Map::len), Some(1), "{answer}");
    answer[name].as_array().unwrap_or_else(|| panic!("no {name}: {answer}")).clone()
}

#[tokio::test]
async fn b156_without_its_cluster_a_router_listens_says_what_is_missing_and_is_ready_once_it_comes() {
    let connection = MemoryCluster::new("test").connect();
    connection.set_reachable(false);
    let rig = Rig::start(HttpFrontend::default(), connection.runtime(), with_admin).await;
    for path in ["/readyz", "/ready"] {
        let reply = rig.get(path).await;
        assert_eq!((reply.status, &*reply.code()), (StatusCode::SERVICE_UNAVAILABLE, "not_ready"));
        assert!(
            reply.json()["error"]["message"].as_str().unwrap().contains("not connected"),
            "{:?}",
            reply.body
        );
    }
    assert_eq!(rig.get("/healthz").await.status, StatusCode::OK);
    assert_eq!(rig.post("/admin/workers/1/drain", &json!({})).await.code(), "discovery_unavailable");
    assert_eq!(rig.get("/admin/replicas").await.code(), "discovery_unavailable");

    connection.set_reachable(true);
    let worker =
        FakeWorker::start(rig.runtime.tasks(), |_, stream| answer_json(stream, 200, COMPLETION)).await;
    rig.register(1, worker.address).await;
    until("readiness", || async { rig.get("/readyz").await.status == StatusCode::OK }).await;
    // What was known stays good when the cluster goes away again.
    connection.set_reachable(false);
    assert_eq!(rig.get("/readyz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn overlap_takes_a_prompt_in_each_of_its_shapes_and_refuses_what_is_none() {
    let rig = with_a_worker().await;
    let overlap = async |body: Value| rig.post("/admin/overlap", &body).await;
    for question in [
        json!({"model": MODEL, "prompt": "Hello"}),
        json!({"model": MODEL, "token_ids": [5, 6, 7], "cache_salt": "s", "lora_name": "l"}),
        json!({"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}),
    ] {
        let row = rows(&overlap(question).await.json(), "overlap").remove(0);
        assert_eq!((&row["worker_id"], &row["rank"], &row["device"]), (&json!(1), &json!(0), &json!(0)));
    }
    let long = rows(&overlap(json!({"model": MODEL, "token_ids": vec![1; 33]})).await.json(), "overlap");
    assert_eq!(long[0]["prompt_blocks"], 2);
    for (question, code) in [
        (json!({"model": MODEL}), "invalid_value"),
        (json!({"model": MODEL, "prompt": "x", "token_ids": [1]}), "invalid_value"),
        (json!({"model": MODEL, "promt": "x"}), "invalid_value"),
        (json!({"model": "none", "prompt": "x"}), "model_not_found"),
        (json!({"model": MODEL, "prompt": "x", "stage": "decode"}), "nothing_eligible"),
    ] {
        assert_eq!(overlap(question.clone()).await.code(), code, "{question}");
    }
}

#[tokio::test]
async fn what_is_refused_and_what_is_configured_can_be_seen() {
    let shown = json!({"etcd": {"password": "***"}, "models": ["a"]});
    let frontend = HttpFrontend::default().shown_config(shown);
    let rig = Rig::start(frontend, cluster(), with_admin).await;
    rig.runtime.discovery().put("workers/7", "no record".into(), None).await.unwrap();
    until("the refusal", || async { !rows(&rig.get("/admin/refused").await.json(), "refused").is_empty() })
        .await;
    let refused = rows(&rig.get("/admin/refused").await.json(), "refused");
    assert_eq!(refused[0]["key"], "workers/7");
    assert!(!refused[0]["reason"].as_str().unwrap().is_empty());
    assert!(rows(&rig.get("/admin/workers").await.json(), "workers").is_empty());
    let config = rows(&rig.get("/admin/config").await.json(), "config");
    assert_eq!(config[0], json!({"setting": "etcd.password", "value": "***"}));
    assert_eq!(config[1], json!({"setting": "models", "value": ["a"]}));
}

#[tokio::test]
async fn a_drain_names_a_worker_by_its_number() {
    let rig = with_a_worker().await;
    let word = async |path: &str, body: Value| rig.post(&format!("/admin/workers/{path}"), &body).await;
    assert_eq!(word("one/drain", json!({})).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(word("9/drain", json!({})).await.code(), "worker_not_found");
    assert_eq!(word("9/resume", json!({})).await.code(), "worker_not_found");
    assert_eq!(word("1/drain", json!({"why": "x"})).await.code(), "invalid_value");
    assert_eq!(word("1/drain", json!({"reason": "a\nb"})).await.code(), "invalid_value");
    let done = rows(&word("1/drain", json!({"reason": "x"})).await.json(), "drain");
    assert_eq!(done, [json!({"worker_id": 1, "outcome": "drained"})]);
    assert_eq!(rig.get("/readyz").await.code(), "not_ready", "the only worker is drained");
}
