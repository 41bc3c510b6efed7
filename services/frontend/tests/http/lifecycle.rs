//! Starting, being ready, being asked how it is, and ending.

use crate::{
    fake_worker::{COMPLETION, FakeWorker, answer_json, begin_events, chunk, end, token},
    rig::{CHAT, COMPLETIONS, MODEL, Rig, chat, cluster, completion, in_time, until},
};
use std::net::SocketAddr;
use switchtower_frontend::{FrontendError, HttpFrontend};
use switchtower_models::{EngineConfig, ModelSource};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
};

fn on_a_free_port() -> EngineConfig {
    EngineConfig { http: SocketAddr::from(([127, 0, 0, 1], 0)), ..EngineConfig::default() }
}

#[tokio::test]
async fn invariant_7_b13_readiness_follows_the_tables_that_route() {
    let rig = Rig::over(&[], cluster()).await;
    until("the registry's first snapshot", || async { rig.selection.is_synced() }).await;
    let reply = rig.get("/ready").await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (503, "not_ready"));
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains(MODEL));
    assert_eq!(rig.get("/live").await.status.as_u16(), 200);
    assert_eq!(rig.get("/health").await.json()["status"], "degraded");
    let reply = rig.post(CHAT, &chat(false)).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code().as_str()),
        (503, "nothing_eligible"),
        "known, but not served yet"
    );

    let worker =
        FakeWorker::start(rig.runtime.tasks(), |_, stream| answer_json(stream, 200, COMPLETION)).await;
    rig.register(1, worker.address).await;
    rig.serves(1).await;
    assert_eq!(rig.get("/ready").await.status.as_u16(), 200);
    assert_eq!(rig.get("/health").await.json()["models"][MODEL]["rows"], 1);
    assert_eq!(rig.post(CHAT, &chat(false)).await.status.as_u16(), 200);

    rig.register_with(1, worker.address, |record| record.draining = true).await;
    rig.serves(0).await;
    assert_eq!(rig.get("/ready").await.status.as_u16(), 503);
}

#[tokio::test]
async fn b12_b105_models_are_listed_from_the_tables_that_route() {
    let rig = Rig::over(&[], cluster()).await;
    assert_eq!(rig.get("/v1/models").await.json()["data"], serde_json::json!([]));
    assert_eq!(rig.get(&format!("/v1/models/{MODEL}")).await.code(), "nothing_eligible");
    assert_eq!(rig.get("/v1/models/no/such").await.code(), "model_not_found");
    // Nobody listens there: the list needs no worker.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    rig.register(1, gone).await;
    rig.serves(1).await;
    let list = rig.get("/v1/models").await.json();
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&"list".into(), &MODEL.into()));
    let model = rig.get(&format!("/v1/models/{MODEL}")).await.json();
    assert_eq!((&model["object"], &model["id"]), (&"model".into(), &MODEL.into()));
    assert_eq!(model, list["data"][0]);
}

#[tokio::test]
async fn a_start_that_fails_says_what_to_change() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let config = EngineConfig { http: address, ..EngineConfig::default() };
    let error = HttpFrontend::default().run(cluster(), config).await.unwrap_err();
    assert!(matches!(error, FrontendError::Bind { .. }) && error.to_string().contains(&address.to_string()));

    let mut config = on_a_free_port();
    config.models = vec![ModelSource::path("m", "/no/such/place")];
    let error = HttpFrontend::default().run(cluster(), config).await.unwrap_err();
    assert!(
        matches!(error, FrontendError::Model(_)) && error.to_string().contains("/no/such/place"),
        "{error}"
    );

    let mut config = on_a_free_port();
    config.router.policy = "no-such-policy".to_owned();
    let error = HttpFrontend::default().run(cluster(), config).await.unwrap_err();
    assert!(
        matches!(error, FrontendError::Selection(_)) && error.to_string().contains("round-robin"),
        "{error}"
    );

    let mut config = on_a_free_port();
    config.timeouts.drain_ms = 0;
    let error = HttpFrontend::default().run(cluster(), config).await.unwrap_err();
    assert!(
        matches!(error, FrontendError::Config(_)) && error.to_string().contains("timeouts.drain_ms"),
        "{error}"
    );
}

#[tokio::test]
async fn a_policy_of_ones_own_serves() {
    let frontend = HttpFrontend::default().worker_selection_policy_factory(switchtower_policies::round_robin);
    let runtime = cluster();
    let mut workers = Vec::new();
    for _ in 0..2 {
        workers
            .push(FakeWorker::start(runtime.tasks(), |_, stream| answer_json(stream, 200, COMPLETION)).await);
    }
    let rig = Rig::start(frontend, runtime, |config| config.router.policy = "ignored".to_owned()).await;
    for (worker, id) in workers.iter().zip(1..) {
        rig.register(id, worker.address).await;
    }
    rig.serves(2).await;
    for _ in 0..10 {
        rig.post(COMPLETIONS, &completion(false)).await;
    }
    assert_eq!(workers.map_lengths(), [5, 5]);
}

trait Lengths {
    fn map_lengths(&self) -> Vec<usize>;
}

impl Lengths for Vec<FakeWorker> {
    fn map_lengths(&self) -> Vec<usize> {
        self.iter().map(|worker| worker.received().len()).collect()
    }
}

#[tokio::test]
async fn b101_the_end_lets_streams_finish_and_fails_readiness_first() {
    let runtime = cluster();
    let workers = cluster();
    let go_on = watch::Sender::new(false);
    let signal = go_on.clone();
    let worker = FakeWorker::start(workers.tasks(), move |_, mut stream| {
        let mut signal = signal.subscribe();
        async move {
            begin_events(&mut stream).await;
            chunk(&mut stream, token("first")).await;
            signal.wait_for(|go_on| *go_on).await.unwrap();
            chunk(&mut stream, "data: [DONE]\n\n").await;
            end(&mut stream).await;
        }
    })
    .await;
    let rig = Rig::over(&[worker], runtime).await;
    let mut client = rig.raw(COMPLETIONS, &completion(true)).await;
    in_time(client.read_u8()).await.unwrap();
    let idle = TcpStream::connect(rig.address).await.unwrap();
    rig.runtime.shutdown_token().cancel();
    let mut probe = BufReader::new(idle);
    tokio::io::AsyncWriteExt::write_all(&mut probe, b"GET /ready HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    let mut status = String::new();
    in_time(probe.read_line(&mut status)).await.unwrap();
    assert!(status.starts_with("HTTP/1.1 503"), "{status}");
    go_on.send_replace(true);
    let mut rest = String::new();
    in_time(client.read_to_string(&mut rest)).await.unwrap();
    assert!(rest.contains("data: [DONE]\n\n") && rest.ends_with("0\r\n\r\n"), "{rest}");
    until("the front end's end", || async { TcpStream::connect(rig.address).await.is_err() }).await;
}
