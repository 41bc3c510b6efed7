//! Workers that fail before their first byte: another one serves, a bounded number of times, and the client hears the
//! truth when none does.

use crate::{
    fake_worker::{COMPLETION, FakeWorker, answer_json, begin_events, closed, end},
    rig::{COMPLETIONS, Rig, cluster, completion, in_time},
};
use switchtower_frontend::HttpFrontend;
use tokio::net::TcpListener;

const MISMATCH: &str =
    r#"{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"incarnation_mismatch"}}"#;
const BUSY: &str = r#"{"error":{"message":"busy","type":"rate_limit_error","param":null,"code":"busy"}}"#;

/// What the first worker that is asked does; `well` answers.
#[derive(Clone, Copy, Debug)]
enum First {
    Resets,
    Breaks,
    EndsEmpty,
    Fails,
    IsBusy,
    IsFull,
    Restarted,
    Redirects,
}

async fn misbehave(how: First, mut stream: tokio::net::TcpStream) {
    match how {
        First::Resets => stream.set_zero_linger().unwrap(),
        First::Breaks => begin_events(&mut stream).await,
        First::EndsEmpty => {
            begin_events(&mut stream).await;
            end(&mut stream).await;
        }
        First::Fails => answer_json(stream, 500, "{}").await,
        First::IsBusy => answer_json(stream, 429, BUSY).await,
        First::IsFull => answer_json(stream, 503, BUSY).await,
        First::Restarted => answer_json(stream, 409, MISMATCH).await,
        First::Redirects => answer_json(stream, 302, "{}").await,
    }
}

#[tokio::test]
async fn a_worker_that_fails_before_its_first_byte_is_replaced() {
    let cases = [
        (First::Resets, "failed"),
        (First::Breaks, "failed"),
        (First::EndsEmpty, "failed"),
        (First::Fails, "failed"),
        (First::Redirects, "failed"),
        (First::IsBusy, "overload"),
        (First::IsFull, "overload"),
        (First::Restarted, "restarted"),
    ];
    for (how, reason) in cases {
        let runtime = cluster();
        let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut workers = Vec::new();
        for _ in 0..2 {
            let asked = std::sync::Arc::clone(&asked);
            let script = move |_, stream| {
                let first = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
                async move {
                    if first {
                        misbehave(how, stream).await;
                    } else {
                        answer_json(stream, 200, COMPLETION).await;
                    }
                }
            };
            workers.push(FakeWorker::start(runtime.tasks(), script).await);
        }
        let rig = Rig::over(&workers, runtime).await;
        let reply = rig.post(COMPLETIONS, &completion(false)).await;
        assert_eq!((reply.status.as_u16(), &reply.body[..]), (200, COMPLETION.as_bytes()), "{how:?}");
        let served: Vec<usize> = workers.iter().map(|worker| worker.received().len()).collect();
        assert_eq!(served, [1, 1], "{how:?}: each worker once");
        let label = format!("reason=\"{reason}\"");
        assert_eq!(rig.metric("switchtower_retries_total", &[&label]).await, 1.0, "{how:?}");
        rig.at_rest().await;
        assert_eq!(rig.ended("ok").await, 1.0);
        assert_eq!(rig.metric("switchtower_prompt_tokens_total", &[]).await, 3.0, "counted once");
    }
}

#[tokio::test]
async fn a_worker_that_refuses_the_connection_is_replaced_and_left_alone() {
    let runtime = cluster();
    let good = FakeWorker::start(runtime.tasks(), |_, stream| answer_json(stream, 200, COMPLETION)).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let rig = Rig::over(&[good], runtime).await;
    rig.register(2, gone).await;
    rig.serves(2).await;
    let began = std::time::Instant::now();
    for _ in 0..20 {
        let reply = rig.post(COMPLETIONS, &completion(false)).await;
        assert_eq!((reply.status.as_u16(), reply.header("x-switchtower-worker")), (200, "1/0"));
    }
    let retries = rig.metric("switchtower_retries_total", &["reason=\"connect\""]).await;
    // It is left alone for five seconds at a time.
    let allowed = 1.0 + (began.elapsed().as_secs_f64() / 5.0).floor();
    assert!(retries <= allowed, "a worker that is gone was tried {retries} times");
    rig.at_rest().await;
}

#[tokio::test]
async fn retries_are_bounded_and_the_end_is_said_in_the_clients_language() {
    let cases = [
        (First::Resets, 502, "worker_failed", "internal"),
        (First::Fails, 502, "worker_failed", "internal"),
        (First::Restarted, 503, "worker_unreachable", "unavailable"),
        (First::IsBusy, 429, "busy", "overload"),
        (First::IsFull, 503, "busy", "overload"),
    ];
    for (how, status, code, outcome) in cases {
        let runtime = cluster();
        let mut workers = Vec::new();
        for _ in 0..4 {
            workers.push(FakeWorker::start(runtime.tasks(), move |_, stream| misbehave(how, stream)).await);
        }
        let rig = Rig::over(&workers, runtime).await;
        let reply = rig.post(COMPLETIONS, &completion(true)).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (status, code), "{how:?}");
        assert_eq!(reply.headers.contains_key("retry-after"), status != 502, "{how:?}");
        let asked: usize = workers.iter().map(|worker| worker.received().len()).sum();
        assert_eq!(asked, 3, "{how:?}");
        rig.at_rest().await;
        assert_eq!(rig.ended(outcome).await, 1.0, "{how:?}");
    }
}

#[tokio::test]
async fn with_one_worker_its_failure_is_the_answer() {
    let runtime = cluster();
    let script = |number, stream| async move {
        let how = if number == 0 { First::Fails } else { First::IsFull };
        misbehave(how, stream).await;
    };
    let worker = FakeWorker::start(runtime.tasks(), script).await;
    let rig = Rig::over(std::slice::from_ref(&worker), runtime).await;
    let reply = rig.post(COMPLETIONS, &completion(false)).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (502, "worker_failed"));
    let reply = rig.post(COMPLETIONS, &completion(false)).await;
    assert_eq!((reply.status.as_u16(), &reply.body[..]), (503, BUSY.as_bytes()));
    assert_eq!(worker.received().len(), 2);
    rig.at_rest().await;
}

#[tokio::test]
async fn what_a_worker_refuses_is_passed_on_as_it_is() {
    const REFUSAL: &str =
        r#"{"error":{"message":"no","type":"invalid_request_error","param":"n","code":"x"}}"#;
    let runtime = cluster();
    let statuses = [400_u16, 404, 409, 413, 422];
    let worker = FakeWorker::start(runtime.tasks(), move |number, stream| {
        answer_json(stream, statuses[number], REFUSAL)
    })
    .await;
    let rig = Rig::over(std::slice::from_ref(&worker), runtime).await;
    for status in statuses {
        let reply = rig.post(COMPLETIONS, &completion(true)).await;
        assert_eq!((reply.status.as_u16(), &reply.body[..]), (status, REFUSAL.as_bytes()));
    }
    assert_eq!(worker.received().len(), statuses.len());
    rig.at_rest().await;
    assert_eq!(rig.ended("refused_by_worker").await, statuses.len() as f64);
}

#[tokio::test]
async fn a_worker_that_sends_nothing_in_time_is_a_gateway_timeout_and_loses_its_connection() {
    let runtime = cluster();
    let (sender, mut gone) = tokio::sync::mpsc::channel(1);
    let worker = FakeWorker::start(runtime.tasks(), move |_, mut stream| {
        let sender = sender.clone();
        async move {
            closed(&mut stream).await;
            sender.send(()).await.unwrap();
        }
    })
    .await;
    let rig = Rig::configured(&[worker], runtime, |config| config.timeouts.first_byte_ms = 20).await;
    let reply = rig.post(COMPLETIONS, &completion(false)).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (504, "worker_timeout"));
    in_time(gone.recv()).await.unwrap();
    rig.at_rest().await;
    assert_eq!(rig.ended("timeout").await, 1.0);
}

#[tokio::test]
async fn the_number_of_attempts_and_the_callers_credentials_are_settings() {
    let runtime = cluster();
    let mut workers = Vec::new();
    for _ in 0..2 {
        workers.push(FakeWorker::start(runtime.tasks(), |_, stream| misbehave(First::Fails, stream)).await);
    }
    let frontend = HttpFrontend::default().attempts_max(1).forward_authorization(true);
    let rig = Rig::start(frontend, runtime, |_| ()).await;
    rig.register(1, workers[0].address).await;
    rig.register(2, workers[1].address).await;
    rig.serves(2).await;
    let reply = rig.post_with(COMPLETIONS, &completion(false), &[("authorization", "Bearer k")]).await;
    assert_eq!(reply.status.as_u16(), 502);
    let received: Vec<_> = workers.iter().flat_map(FakeWorker::received).collect();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].headers["authorization"], "Bearer k");
}
