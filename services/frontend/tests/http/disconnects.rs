//! Clients that go away: whatever the request was doing, the worker hears of it and the books are empty again. Design
//! invariants 1 and 2 from outside.

use crate::{
    fake_worker::{FakeWorker, begin_events, chunk, closed, end, token},
    rig::{COMPLETIONS, Rig, cluster, completion, in_time, until},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

/// How a client goes.
#[derive(Clone, Copy, Debug)]
enum Leave {
    Closes,
    Resets,
    /// Counts as gone: see the server's documentation.
    HalfCloses,
}

impl Leave {
    const ALL: [Self; 3] = [Self::Closes, Self::Resets, Self::HalfCloses];

    /// What is left of the client.
    async fn go(self, mut client: TcpStream) -> Option<TcpStream> {
        match self {
            Self::Closes => None,
            Self::Resets => {
                client.set_zero_linger().unwrap();
                None
            }
            Self::HalfCloses => {
                client.shutdown().await.unwrap();
                Some(client)
            }
        }
    }
}

/// A worker that sends so many tokens, then nothing, and reports when its peer is gone.
async fn silent_after(
    tokens: usize,
    runtime: &switchtower_cluster::DistributedRuntime,
) -> (FakeWorker, mpsc::Receiver<()>) {
    let (sender, gone) = mpsc::channel(64);
    let worker = FakeWorker::start(runtime.tasks(), move |_, mut stream| {
        let sender = sender.clone();
        async move {
            if tokens > 0 {
                begin_events(&mut stream).await;
            }
            for number in 0..tokens {
                chunk(&mut stream, token(&number.to_string())).await;
            }
            closed(&mut stream).await;
            sender.send(()).await.unwrap();
        }
    })
    .await;
    (worker, gone)
}

#[tokio::test]
async fn b100_b71_a_client_that_leaves_before_the_first_byte_is_noticed_by_the_worker_and_the_books() {
    for leave in Leave::ALL {
        let runtime = cluster();
        let (worker, mut gone) = silent_after(0, &runtime).await;
        let rig = Rig::over(std::slice::from_ref(&worker), runtime).await;
        for stream in [false, true] {
            let client = rig.raw(COMPLETIONS, &completion(stream)).await;
            rig.booked(1).await;
            in_time(worker.wait_for(if stream { 2 } else { 1 })).await;
            let _rest = leave.go(client).await;
            in_time(gone.recv()).await.unwrap();
            rig.at_rest().await;
        }
        assert_eq!(rig.ended("cancelled").await, 2.0, "{leave:?}");
    }
}

#[tokio::test]
async fn b42_a_client_that_leaves_in_the_middle_is_noticed_by_the_worker_and_the_books() {
    for leave in Leave::ALL {
        let runtime = cluster();
        let (worker, mut gone) = silent_after(3, &runtime).await;
        let rig = Rig::over(std::slice::from_ref(&worker), runtime).await;
        let mut client = rig.raw(COMPLETIONS, &completion(true)).await;
        in_time(client.read_u8()).await.unwrap();
        rig.booked(1).await;
        let _rest = leave.go(client).await;
        in_time(gone.recv()).await.unwrap();
        rig.at_rest().await;
        assert_eq!(rig.ended("cancelled").await, 1.0, "{leave:?}");
        let tokens = rig.metric("switchtower_output_tokens_total", &[]).await;
        assert!((1.0..=3.0).contains(&tokens), "B97: usage is recorded for aborted requests too: {tokens}");
    }
}

#[tokio::test]
async fn b63_b100_a_client_that_leaves_while_queued_leaves_the_queue() {
    let runtime = cluster();
    let (worker, _gone) = silent_after(0, &runtime).await;
    let rig = Rig::start(switchtower_frontend::HttpFrontend::default(), runtime, |config| {
        // One request with more than a token of prefill makes the only row busy.
        config.router.queue_threshold = Some(1e-6);
    })
    .await;
    rig.register_with(1, worker.address, |record| record.max_batch_tokens = Some(1_000)).await;
    rig.serves(1).await;
    let first = rig.raw(COMPLETIONS, &completion(true)).await;
    rig.booked(1).await;
    let waiting = async || rig.selection.loads().await.iter().map(|load| load.waiting).sum::<usize>();
    for leave in Leave::ALL {
        let client = rig.raw(COMPLETIONS, &completion(true)).await;
        until("the second request waiting", || async { waiting().await == 1 }).await;
        let _rest = leave.go(client).await;
        until("the queue empty", || async { waiting().await == 0 }).await;
    }
    drop(first);
    rig.at_rest().await;
    assert_eq!(rig.ended("cancelled").await, 4.0);
    assert_eq!(worker.received().len(), 1);
}

#[tokio::test]
async fn b60_a_client_that_leaves_after_the_end_was_served() {
    let runtime = cluster();
    let (sender, mut gone) = mpsc::channel(1);
    let worker = FakeWorker::start(runtime.tasks(), move |_, mut stream| {
        let sender = sender.clone();
        async move {
            begin_events(&mut stream).await;
            chunk(&mut stream, token("all")).await;
            chunk(&mut stream, "data: [DONE]\n\n").await;
            closed(&mut stream).await;
            sender.send(()).await.unwrap();
            end(&mut stream).await;
        }
    })
    .await;
    let rig = Rig::over(&[worker], runtime).await;
    let mut client = rig.raw(COMPLETIONS, &completion(true)).await;
    let mut read = Vec::new();
    while !read.ends_with(b"data: [DONE]\n\n\r\n") {
        read.push(in_time(client.read_u8()).await.unwrap());
    }
    drop(client);
    in_time(gone.recv()).await.unwrap();
    rig.at_rest().await;
    assert_eq!(rig.ended("ok").await, 1.0);
}

#[tokio::test]
async fn b42_many_clients_that_leave_leave_nothing_behind() {
    let runtime = cluster();
    let (first, _gone) = silent_after(2, &runtime).await;
    let (second, _also_gone) = silent_after(0, &runtime).await;
    let rig = Rig::over(&[first, second], runtime).await;
    let mut clients = Vec::new();
    for _ in 0..40 {
        clients.push(rig.raw(COMPLETIONS, &completion(true)).await);
    }
    rig.booked(40).await;
    drop(clients);
    rig.at_rest().await;
    assert_eq!(rig.ended("cancelled").await, 40.0);
    assert_eq!(rig.metric("switchtower_row_active_requests", &[]).await, 0.0);
}
