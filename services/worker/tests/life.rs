//! The worker's life: it registers, frees what clients leave, fails on purpose, drains, and breaks when it is dropped.

mod support;

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::BodyExt;
use hyper::StatusCode;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use support::{Bench, MODEL, PATIENCE, chat, endless, events_of, fast, json_of, long_text, until, with};
use switchtower_cluster::BusError;
use switchtower_ids::Rank;
use switchtower_selection::{
    records::WorkerRecord,
    registration::RegistrationState,
    wire::{KV_EVENTS, LOADS, range_subject},
};
use switchtower_worker::{Faults, RunningWorker, SimulatedWorker, SimulatedWorkerConfig, WorkerError};
use tokio::{io::AsyncWriteExt, net::TcpStream};

const CHAT: &str = "/v1/chat/completions";

async fn record(bench: &Bench) -> Option<WorkerRecord> {
    let entry = bench.runtime.discovery().get("workers/7").await.unwrap()?;
    Some(WorkerRecord::parse("workers/7", &entry.value).unwrap())
}

#[tokio::test]
async fn it_registers_what_it_is_once_it_can_be_reached() {
    let bench = Bench::start(SimulatedWorkerConfig { ranks: 2, ..fast() }).await;
    let record = record(&bench).await.unwrap();
    assert_eq!(record, bench.worker.record());
    assert_eq!(record.endpoint, format!("http://{}", bench.worker.address()));
    assert_eq!((record.ranks, record.block_size, record.draining), (2, MODEL.card().block_size, false));
}

async fn again(bench: &Bench, config: SimulatedWorkerConfig) -> RunningWorker {
    let worker = SimulatedWorker::build(config, Arc::clone(&MODEL), bench.cluster.runtime()).await.unwrap();
    worker.start().await.unwrap()
}

#[tokio::test]
async fn book_rule_10_a_second_worker_of_the_same_id_waits_until_the_first_has_gone() {
    let bench = Bench::start(fast()).await;
    let second = again(&bench, fast()).await;
    assert_ne!(second.incarnation(), bench.worker.incarnation());
    assert_eq!(record(&bench).await.unwrap().incarnation, bench.worker.incarnation());
    let state = second.registration().state();
    let named =
        matches!(&state, RegistrationState::Refused { reason } if reason.contains(bench.worker.endpoint()));
    assert!(named, "{state}");
    let Bench { worker, runtime, .. } = bench;
    worker.drain(Duration::ZERO).await;
    assert_eq!(second.registration().registered().await, RegistrationState::Registered);
    let entry = runtime.discovery().get("workers/7").await.unwrap().unwrap();
    assert_eq!(WorkerRecord::parse("workers/7", &entry.value).unwrap(), second.record());
}

#[tokio::test]
async fn each_life_has_its_own_incarnation_and_a_new_one_at_the_same_endpoint_replaces_the_record() {
    let behind = |config| SimulatedWorkerConfig { advertise: Some("http://worker-7:80".into()), ..config };
    let bench = Bench::start(behind(fast())).await;
    let second = again(&bench, behind(fast())).await;
    assert_ne!(second.incarnation(), bench.worker.incarnation());
    assert_eq!(record(&bench).await.unwrap().incarnation, second.incarnation());
    let lost = tokio::time::timeout(PATIENCE, bench.worker.lost()).await;
    assert_eq!(lost.expect("the former life is told"), RegistrationState::Replaced);
    let Bench { worker, runtime, .. } = bench;
    worker.drain(Duration::ZERO).await;
    assert!(
        runtime.discovery().get("workers/7").await.unwrap().is_some(),
        "the old life takes only its own record"
    );
}

#[tokio::test]
async fn b02_a_worker_that_lost_its_lease_registers_again_and_its_stream_does_not_notice() {
    let bench = Bench::start(SimulatedWorkerConfig { speed: 5.0, ..endless() }).await;
    let long = with(chat("a"), json!({"stream": true, "max_tokens": 50, "ignore_eos": true}));
    let stream = bench.send(CHAT, &long).await;
    bench.connection.discovery.expire_leases();
    let back = async {
        while record(&bench).await != Some(bench.worker.record()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.expect("the record comes back");
    assert_eq!(events_of(stream).await.len(), 51, "the stream is whole");
    assert!(bench.ask(CHAT, &chat("b")).await.0.is_success());
}

#[tokio::test]
async fn b02_a_worker_that_cannot_register_again_ends_in_order_where_it_is_told_to() {
    let patience = SimulatedWorkerConfig { unregistered_limit_ms: 20, lease_ttl_ms: 1_000, ..endless() };
    let bench = Bench::start(SimulatedWorkerConfig { speed: 5.0, ..patience }).await;
    let long = with(chat("a"), json!({"stream": true, "max_tokens": 50, "ignore_eos": true}));
    let stream = bench.send(CHAT, &long).await;
    let Bench { worker, connection, cluster, .. } = bench;
    connection.vanish();
    let lost = tokio::time::timeout(PATIENCE, worker.lost()).await.expect("it gives up");
    assert!(matches!(lost, RegistrationState::Pending { .. }), "{lost}");
    let (drained, events) = tokio::join!(worker.drain(PATIENCE), events_of(stream));
    assert_eq!((drained.cut, events.len()), (0, 51), "what is inside ends well");
    let left = cluster.runtime().discovery().get("workers/7").await.unwrap();
    assert_eq!(left, None);
}

#[tokio::test]
async fn a_worker_without_events_says_so_and_publishes_none() {
    let bench = Bench::start(SimulatedWorkerConfig { kv_events: false, ..fast() }).await;
    let mut events = bench.runtime.bus().subscribe(KV_EVENTS).await.unwrap();
    let mut loads = bench.runtime.bus().subscribe(LOADS).await.unwrap();
    assert!(!record(&bench).await.unwrap().kv_events);
    assert!(bench.ask(CHAT, &chat(&long_text(200))).await.0.is_success());
    assert!(!bench.worker.cached_blocks(Rank(0)).is_empty());
    for _ in 0..3 {
        loads.next().await.unwrap();
    }
    assert!(events.try_next().is_none());
    let subject = range_subject(bench.worker.record().worker_id, bench.worker.incarnation());
    let asked = bench.runtime.bus().request(&subject, Bytes::new(), PATIENCE).await;
    assert!(matches!(asked, Err(BusError::NoResponders { .. })));
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let bench = Bench::start(fast()).await;
    let taken = SimulatedWorkerConfig { listen: bench.worker.address(), ..fast() };
    let error = SimulatedWorker::build(taken, Arc::clone(&MODEL), bench.runtime.clone()).await.unwrap_err();
    assert!(matches!(error, WorkerError::Listen { .. }) && error.to_string().contains("port 0"), "{error}");
    let cut = bench.cluster.connect();
    cut.set_reachable(false);
    let worker = SimulatedWorker::build(fast(), Arc::clone(&MODEL), cut.runtime()).await.unwrap();
    let error = worker.start().await.unwrap_err();
    assert!(error.to_string().contains("worker 7 cannot"), "{error}");
}

fn idle(bench: &Bench) -> bool {
    let load = bench.worker.load(Rank(0)).unwrap();
    (load.running, load.waiting, load.blocks_used, bench.worker.requests()) == (0, 0, 0, 0)
}

#[tokio::test]
async fn b71_a_client_that_leaves_mid_stream_frees_the_engine_with_all_branches() {
    let bench = Bench::start(endless()).await;
    let body =
        with(chat(&long_text(40)), json!({"stream": true, "n": 4, "max_tokens": 5_000, "ignore_eos": true}));
    let mut response = bench.send(CHAT, &body).await;
    response.body_mut().frame().await.unwrap().unwrap();
    until("all four run", || bench.worker.load(Rank(0)).unwrap().running == 4).await;
    drop(response);
    until("idle", || idle(&bench)).await;
}

#[tokio::test]
async fn b71_a_client_that_leaves_before_the_first_byte_frees_the_engine() {
    let bench = Bench::start(endless()).await;
    let body = with(chat(&long_text(40)), json!({"max_tokens": 5_000, "ignore_eos": true})).to_string();
    let mut stream = TcpStream::connect(bench.worker.address()).await.unwrap();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: w\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    until("it runs", || bench.worker.load(Rank(0)).unwrap().running == 1).await;
    drop(stream);
    until("idle", || idle(&bench)).await;
}

#[tokio::test]
async fn b71_a_client_that_leaves_a_silent_worker_is_noticed() {
    let faults = Faults { slow_probability: 1.0, slow_ms: 600_000, ..Faults::default() };
    let bench = Bench::start(SimulatedWorkerConfig { faults, ..fast() }).await;
    let request = bench.client.request(bench.post(CHAT, &[], chat("a").to_string()));
    let leave = until("it is inside", || bench.worker.requests() == 1);
    tokio::select! {
        _ = request => panic!("the worker is silent for ten minutes"),
        () = leave => {}
    }
    until("idle", || idle(&bench)).await;
}

#[tokio::test]
async fn faults_fail_before_the_first_byte_or_cut_the_stream() {
    let bench = Bench::start(fast()).await;
    bench.worker.set_faults(Faults { fail_before_first_byte: 1.0, ..Faults::default() }).unwrap();
    let (status, answer) = bench.ask(CHAT, &chat("a")).await;
    assert_eq!((status.as_u16(), answer["error"]["code"].as_str()), (500, Some("injected_fault")));

    bench
        .worker
        .set_faults(Faults { cut_probability: 1.0, cut_after_tokens: 3, ..Faults::default() })
        .unwrap();
    let mut stream = bench.send(CHAT, &with(chat("a"), json!({"stream": true}))).await.into_body();
    let mut text = String::new();
    let broken = loop {
        match stream.frame().await {
            Some(Ok(frame)) => text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap()),
            other => break other,
        }
    };
    assert!(matches!(broken, Some(Err(_))), "the connection breaks; it does not end");
    assert_eq!(text.matches("data: ").count(), 3);
    let whole = bench.client.request(bench.post(CHAT, &[], chat("a").to_string())).await;
    let whole = match whole {
        Ok(response) => response.into_body().collect().await.map(|_| ()).is_ok(),
        Err(_) => false,
    };
    assert!(!whole, "a plain answer breaks too");

    bench.worker.set_faults(Faults::default()).unwrap();
    assert_eq!(bench.ask(CHAT, &chat("a")).await.0, StatusCode::OK);
    assert!(bench.worker.set_faults(Faults { cut_probability: 2.0, ..Faults::default() }).is_err());
    until("idle", || idle(&bench)).await;
}

#[tokio::test]
async fn b21_a_drain_refuses_the_new_finishes_the_old_and_then_deregisters() {
    let bench = Bench::start(SimulatedWorkerConfig { speed: 5.0, ..endless() }).await;
    let long = with(chat("a"), json!({"stream": true, "max_tokens": 100, "ignore_eos": true}));
    let streams = join_all((0..5).map(|_| bench.send(CHAT, &long))).await;
    until("five are inside", || bench.worker.requests() == 5).await;
    let Bench { worker, runtime, client, cluster, connection } = bench;
    let (endpoint, address) = (worker.endpoint().to_owned(), worker.address());
    let send = async || {
        let request = hyper::Request::post(format!("{endpoint}{CHAT}"));
        client.request(request.body(chat("b").to_string().into()).unwrap()).await
    };
    let watching = async {
        let announced = async {
            loop {
                let entry = runtime.discovery().get("workers/7").await.unwrap().unwrap();
                if WorkerRecord::parse("workers/7", &entry.value).unwrap().draining {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, announced).await.expect("the record says so");
        let refused = send().await.unwrap();
        assert_eq!(refused.headers()["retry-after"], "1");
        let (status, answer) = json_of(refused).await;
        assert_eq!((status.as_u16(), answer["error"]["code"].as_str()), (503, Some("worker_draining")));
        let answers = join_all(streams.into_iter().map(events_of)).await;
        assert!(answers.iter().all(|events| events.len() == 101), "every stream is whole");
    };
    let (drained, ()) = tokio::join!(worker.drain(PATIENCE), watching);
    assert_eq!(drained.cut, 0);
    assert_eq!(runtime.discovery().get("workers/7").await.unwrap(), None);
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
    drop((cluster, connection));
}

#[tokio::test]
async fn b21_a_drain_at_its_deadline_breaks_what_is_left() {
    let bench = Bench::start(endless()).await;
    let long = with(chat("a"), json!({"stream": true, "max_tokens": 5_000, "ignore_eos": true}));
    let stream = bench.send(CHAT, &long).await;
    let Bench { worker, .. } = bench;
    assert_eq!(worker.drain(Duration::from_millis(1)).await.cut, 1);
    assert!(stream.into_body().collect().await.is_err(), "a cut stream does not look complete");
}

#[tokio::test]
async fn dropping_a_worker_breaks_its_streams_and_takes_its_record() {
    let bench = Bench::start(endless()).await;
    let long = with(chat("a"), json!({"stream": true, "max_tokens": 5_000, "ignore_eos": true}));
    let stream = bench.send(CHAT, &long).await;
    let Bench { worker, runtime, .. } = bench;
    drop(worker);
    assert!(stream.into_body().collect().await.is_err());
    let gone = async {
        while runtime.discovery().get("workers/7").await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the record goes with the lease");
}
