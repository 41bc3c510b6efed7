//! Answers on their way back: the same bytes, visible failures, right counts, no piling up.

use crate::{
    fake_worker::{
        COMPLETION, FakeWorker, answer, answer_events, answer_json, begin_events, chunk, closed, end, token,
        write,
    },
    rig::{CHAT, COMPLETIONS, Rig, chat, cluster, completion, in_time, until},
};
use serde_json::Value;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::io::AsyncReadExt;

#[tokio::test]
async fn the_workers_bytes_reach_the_client_and_the_clients_bytes_the_worker() {
    let runtime = cluster();
    let worker = FakeWorker::start(runtime.tasks(), |number, stream| async move {
        if number == 0 { answer_json(stream, 200, COMPLETION).await } else { answer_events(stream, 3).await }
    })
    .await;
    let rig = Rig::over(std::slice::from_ref(&worker), runtime).await;
    let body = format!("{{ \"prompt\":[5,6,7],\n \"unknown\": 1e2, \"model\": \"{}\" }}", crate::rig::MODEL);
    let headers = [
        ("authorization", "Bearer secret"),
        ("traceparent", "00-a-b-01"),
        ("x-request-id", "night-train-17"),
    ];
    let reply = rig.post_bytes(COMPLETIONS, body.clone().into(), &headers).await;
    assert_eq!((reply.status.as_u16(), &reply.body[..]), (200, COMPLETION.as_bytes()));
    assert_eq!(reply.header("x-switchtower-worker"), "1/0");
    assert_eq!(reply.header("x-request-id"), "night-train-17");
    let received = worker.received().remove(0);
    assert_eq!((received.path.as_str(), received.body.as_slice()), (COMPLETIONS, body.as_bytes()));
    let header = |name: &str| received.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(header("x-switchtower-incarnation").as_deref(), Some("000000000000abc1"));
    assert_eq!(header("x-data-parallel-rank").as_deref(), Some("0"));
    assert_eq!(header("x-request-id").as_deref(), Some("night-train-17"));
    assert_eq!(header("traceparent").as_deref(), Some("00-a-b-01"));
    assert_eq!(header("authorization"), None);

    let reply = rig.post(CHAT, &chat(true)).await;
    assert_eq!(reply.header("content-type"), "text/event-stream");
    let expected: String =
        (0..3).map(|number| token(&number.to_string())).chain(["data: [DONE]\n\n".to_owned()]).collect();
    assert_eq!(reply.body, expected);
    rig.at_rest().await;
    assert_eq!(rig.ended("ok").await, 2.0);
    assert_eq!(rig.metric("switchtower_output_tokens_total", &[]).await, 7.0 + 3.0);
    assert_eq!(rig.metric("switchtower_time_to_first_byte_seconds_count", &[]).await, 2.0);
}

#[tokio::test]
async fn b92_b103_a_worker_that_dies_in_the_middle_is_an_error_that_clients_see_and_no_retry() {
    let runtime = cluster();
    let script = |number: usize, mut stream: tokio::net::TcpStream| async move {
        begin_events(&mut stream).await;
        for number in 0..10 {
            chunk(&mut stream, token(&number.to_string())).await;
        }
        chunk(&mut stream, "data: {\"torn\":").await;
        if number == 1 {
            // Ends in good order, but without the end that the API asks for.
            end(&mut stream).await;
        }
    };
    let workers =
        [FakeWorker::start(runtime.tasks(), script).await, FakeWorker::start(runtime.tasks(), script).await];
    let rig = Rig::over(&workers, runtime).await;
    for round in 1..=2_usize {
        let pinned = [("x-switchtower-allowed-workers", "1")];
        let pinned = if round == 1 { &[][..] } else { &pinned[..] };
        let reply = rig.post_with(COMPLETIONS, &completion(true), pinned).await;
        let events = reply.events();
        assert!(reply.status.is_success() && !reply.broken);
        assert_eq!(events.len(), 12, "{events:?}");
        assert_eq!(events[11], "[DONE]");
        let error: Value = serde_json::from_str(&events[10]).unwrap();
        assert_eq!(error["error"]["code"], "worker_lost");
        assert!(events[..10].iter().all(|event| serde_json::from_str::<Value>(event).is_ok()));
        rig.at_rest().await;
        assert_eq!(rig.ended("unavailable").await, round as f64);
        assert_eq!(rig.ended("ok").await, 0.0);
        let sent: usize = workers.iter().map(|worker| worker.received().len()).sum();
        assert_eq!(sent, round, "a request was sent again after its first byte");
    }
    assert_eq!(rig.metric("switchtower_retries_total", &[]).await, 0.0);
    assert_eq!(rig.metric("switchtower_output_tokens_total", &[]).await, 20.0);
}

#[tokio::test]
async fn b93_failures_after_the_first_token_are_told_apart() {
    let runtime = cluster();
    let worker = FakeWorker::start(runtime.tasks(), |number, mut stream| async move {
        begin_events(&mut stream).await;
        chunk(&mut stream, token("first")).await;
        match number {
            0 => chunk(&mut stream, "data: {\"error\":{\"message\":\"busy\",\"code\":503}}\n\n").await,
            1 => return,
            2 => chunk(&mut stream, "data: {\"error\":{\"message\":\"bug\",\"code\":500}}\n\n").await,
            _ => closed(&mut stream).await,
        }
        chunk(&mut stream, "data: [DONE]\n\n").await;
        end(&mut stream).await;
    })
    .await;
    let rig = Rig::over(&[worker], runtime).await;
    for expected in ["overload", "unavailable", "internal"] {
        rig.post(COMPLETIONS, &completion(true)).await;
        until(expected, || async { rig.ended(expected).await == 1.0 }).await;
    }
    let mut client = rig.raw(COMPLETIONS, &completion(true)).await;
    in_time(client.read_u8()).await.unwrap();
    drop(client);
    until("cancelled", || async { rig.ended("cancelled").await == 1.0 }).await;
    rig.at_rest().await;
    assert_eq!(rig.metric("switchtower_requests_total", &[]).await, 4.0);
}

#[tokio::test]
async fn b96_one_byte_per_chunk_changes_nothing() {
    let text = "data: {\"choices\":[{\"text\":\"🚂 e\u{301} \u{2028}\u{feff} \\ud83d \"}]}\n\n".to_owned();
    let bytes = [text.as_bytes(), b"data: \xff\xf0\x9f\n\n", b"data: [DONE]\n\n"].concat();
    let runtime = cluster();
    let sent = bytes.clone();
    let worker = FakeWorker::start(runtime.tasks(), move |_, mut stream| {
        let sent = sent.clone();
        async move {
            begin_events(&mut stream).await;
            for byte in sent {
                chunk(&mut stream, [byte]).await;
            }
            end(&mut stream).await;
        }
    })
    .await;
    let rig = Rig::over(&[worker], runtime).await;
    let reply = rig.post(COMPLETIONS, &completion(true)).await;
    assert_eq!(reply.body, bytes);
    rig.at_rest().await;
    assert_eq!(rig.ended("ok").await, 1.0);
}

#[tokio::test]
async fn b98_b95_whatever_a_worker_answers_is_passed_on_or_a_clean_error() {
    let documents: Vec<(&str, Vec<u8>)> = vec![
        ("application/json", b"{}".to_vec()),
        ("application/json", br#"{"choices":[],"usage":"oops"}"#.to_vec()),
        ("application/json", br#"{"usage":[1,2]}"#.to_vec()),
        ("application/json", br#"{"usage":{"completion_tokens":-1,"prompt_tokens":"1024"}}"#.to_vec()),
        ("application/json", br#"{"usage":{"completion_tokens":9223372036854775808}}"#.to_vec()),
        ("application/json", br#"{"usage":{},"usage":{"completion_tokens":1e99}}"#.to_vec()),
        ("application/json", b"not json".to_vec()),
        ("text/html", b"<html>502</html>".to_vec()),
        ("application/json", vec![b'x'; 10 << 20]),
        ("text/event-stream", b"data: {\"usage\":\"oops\"}\n\ndata: [DONE]\n\n".to_vec()),
        (
            "text/event-stream",
            b"data: {\"usage\":{\"completion_tokens\":18446744073709551615}}\n\ndata: [DONE]\n\n".to_vec(),
        ),
        (
            "text/event-stream",
            [b"data: ".to_vec(), vec![b'x'; 10 << 20], b"\n\ndata: [DONE]\n\n".to_vec()].concat(),
        ),
    ];
    let runtime = cluster();
    let script = documents.clone();
    let worker = FakeWorker::start(runtime.tasks(), move |number, stream| {
        let (content_type, body) = script[number].clone();
        async move { answer(stream, 200, content_type, body).await }
    })
    .await;
    let rig = Rig::over(&[worker], runtime).await;
    for (content_type, body) in &documents {
        let stream = *content_type == "text/event-stream";
        let reply = rig.post(COMPLETIONS, &completion(stream)).await;
        assert_eq!((reply.status.as_u16(), reply.body.len()), (200, body.len()), "{content_type}");
        assert!(reply.body == body[..] && !reply.broken);
    }
    rig.at_rest().await;
    assert_eq!(rig.ended("ok").await, documents.len() as f64);
    assert!(rig.metric("switchtower_output_tokens_total", &[]).await <= 3.0, "an absurd count was believed");
}

#[tokio::test]
async fn a_document_that_is_cut_breaks_the_clients_connection_too() {
    let runtime = cluster();
    let worker = FakeWorker::start(runtime.tasks(), |number, mut stream| async move {
        let length = if number == 0 { "content-length: 1000" } else { "transfer-encoding: chunked" };
        write(&mut stream, format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{length}\r\n\r\n"))
            .await;
        if number == 0 { write(&mut stream, "{\"a\":").await } else { chunk(&mut stream, "{\"a\":").await }
    })
    .await;
    let rig = Rig::over(&[worker], runtime).await;
    for round in 1..=2_usize {
        let reply = rig.post(COMPLETIONS, &completion(false)).await;
        assert!(reply.broken && reply.status.is_success());
        rig.at_rest().await;
        assert_eq!(rig.ended("unavailable").await, round as f64);
    }
}

#[tokio::test]
async fn a_worker_that_falls_silent_in_the_middle_is_given_up() {
    let runtime = cluster();
    let worker = FakeWorker::start(runtime.tasks(), |_, mut stream| async move {
        begin_events(&mut stream).await;
        chunk(&mut stream, token("first")).await;
        closed(&mut stream).await;
    })
    .await;
    let rig = Rig::configured(&[worker], runtime, |config| config.timeouts.idle_ms = 20).await;
    let reply = rig.post(COMPLETIONS, &completion(true)).await;
    let events = reply.events();
    assert!(events[1].contains("worker_timeout") && events[2] == "[DONE]", "{events:?}");
    rig.at_rest().await;
    assert_eq!(rig.ended("timeout").await, 1.0);
}

/// A reader that does not read stops the worker: what is between them is bounded by sockets' buffers.
#[tokio::test]
async fn a_slow_reader_holds_the_worker_back() {
    const CHUNKS: usize = 4_096;
    const CHUNK_BYTES: usize = 64 * 1024;
    let runtime = cluster();
    let written = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&written);
    let worker = FakeWorker::start(runtime.tasks(), move |_, mut stream| {
        let counter = Arc::clone(&counter);
        async move {
            begin_events(&mut stream).await;
            let event = token(&"x".repeat(CHUNK_BYTES));
            for _ in 0..CHUNKS {
                chunk(&mut stream, &event).await;
                counter.fetch_add(event.len(), Ordering::Relaxed);
            }
            chunk(&mut stream, "data: [DONE]\n\n").await;
            end(&mut stream).await;
        }
    })
    .await;
    let rig = Rig::over(&[worker], runtime).await;
    let mut client = rig.raw(COMPLETIONS, &completion(true)).await;
    in_time(client.read_u8()).await.unwrap();
    // The worker stands still once it has written the same amount twice in a row. A machine so slow that this is a pause
    // only makes the amount smaller.
    let before = AtomicUsize::new(usize::MAX);
    until("the worker standing still", || async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let now = written.load(Ordering::Relaxed);
        before.swap(now, Ordering::Relaxed) == now
    })
    .await;
    let piled_up = written.load(Ordering::Relaxed);
    assert!(piled_up < CHUNKS * CHUNK_BYTES / 4, "{piled_up} bytes piled up");
    let mut read = 0;
    let mut buffer = vec![0; 1 << 20];
    let mut tail = Vec::new();
    while !tail.ends_with(b"0\r\n\r\n") {
        let count = in_time(client.read(&mut buffer)).await.unwrap();
        assert!(count > 0, "the answer broke off");
        read += count;
        tail.extend_from_slice(&buffer[..count]);
        tail.drain(..tail.len().saturating_sub(8));
    }
    assert!(read > CHUNKS * CHUNK_BYTES);
    rig.at_rest().await;
    assert_eq!(rig.ended("ok").await, 1.0);
}
