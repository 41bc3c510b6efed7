//! The HTTP server over real sockets on loopback, mostly spoken to byte by byte.

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use switchtower_runtime::{
    CancellationToken, OnError, TaskGroup,
    http_server::{Drained, HttpServerOptions, PeerAddress, serve},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc, oneshot},
};
use tower::service_fn;

/// Longer than anything here takes; reached only by a failing test.
const PATIENCE: Duration = Duration::from_secs(30);

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// What the test's service tells the test, and waits for.
#[derive(Clone)]
struct Stage {
    events: mpsc::Sender<&'static str>,
    release: std::sync::Arc<Notify>,
}

/// Reports when it is dropped.
struct DropReport(mpsc::Sender<&'static str>, &'static str);

impl Drop for DropReport {
    fn drop(&mut self) {
        self.0.try_send(self.1).unwrap();
    }
}

/// A body without end: one chunk of a byte, then silence; or chunk after chunk as fast as they are taken.
struct Endless {
    chunk: Bytes,
    repeat: bool,
    sent: bool,
    _report: DropReport,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.sent && !self.repeat {
            return Poll::Pending;
        }
        self.sent = true;
        Poll::Ready(Some(Ok(Frame::data(self.chunk.clone()))))
    }
}

fn text(body: &str) -> Answer {
    Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())).boxed_unsync())
}

async fn answer(stage: Stage, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let path = request.uri().path().to_owned();
    let peer = request.extensions().get::<PeerAddress>().copied();
    request.into_body().collect().await.ok();
    match path.as_str() {
        "/wait" => {
            let _report = DropReport(stage.events.clone(), "handler dropped");
            stage.events.send("handler started").await.unwrap();
            stage.release.notified().await;
            Ok(text("waited"))
        }
        "/stream" | "/flood" => {
            let repeat = path == "/flood";
            let chunk = Bytes::from(vec![b'x'; if repeat { 65_536 } else { 1 }]);
            let report = DropReport(stage.events.clone(), "body dropped");
            Ok(Response::new(Endless { chunk, repeat, sent: false, _report: report }.boxed_unsync()))
        }
        "/panic" => panic!("this request is cursed"),
        "/peer" => Ok(text(&peer.unwrap().0.to_string())),
        _ => Ok(text("fine")),
    }
}

struct Server {
    address: SocketAddr,
    events: mpsc::Receiver<&'static str>,
    release: std::sync::Arc<Notify>,
    shutdown: CancellationToken,
    group: TaskGroup,
    drained: oneshot::Receiver<Drained>,
}

impl Server {
    async fn start(options: HttpServerOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (events_in, events) = mpsc::channel(64);
        let stage = Stage { events: events_in, release: Default::default() };
        let release = stage.release.clone();
        let service = service_fn(move |request| answer(stage.clone(), request));
        let (group, shutdown) = (TaskGroup::new(), CancellationToken::new());
        let serving = serve(listener, service, options, &group, shutdown.clone());
        let (drained_in, drained) = oneshot::channel();
        group.spawn_named("server", async move {
            drained_in.send(serving.await).ok();
        });
        Self { address, events, release, shutdown, group, drained }
    }

    async fn next_event(&mut self) -> &'static str {
        within(self.events.recv()).await.unwrap()
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn send(&self, request: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Whole answer to a request on a connection of its own.
    async fn ask(&self, path: &str) -> String {
        let mut stream =
            self.send(&format!("GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")).await;
        read_to_end(&mut stream).await
    }

    async fn end(self) -> Drained {
        self.shutdown.cancel();
        within(self.drained).await.unwrap()
    }
}

async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("the test waited in vain")
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset after the answer is an end too.
    let _ = within(stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).to_lowercase()
}

async fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(wanted) {
        let mut bytes = [0; 1024];
        let count = within(stream.read(&mut bytes)).await.unwrap();
        assert_ne!(count, 0, "closed after {seen:?}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]).to_lowercase());
    }
    seen
}

/// Options under which no limit is reached by accident.
fn patient() -> HttpServerOptions {
    HttpServerOptions { drain: PATIENCE, ..HttpServerOptions::default() }
}

const WAIT: &str = "GET /wait HTTP/1.1\r\nhost: t\r\n\r\n";

#[tokio::test]
async fn b100_a_client_that_leaves_while_the_handler_waits_drops_it() {
    let mut server = Server::start(patient()).await;
    for request in
        [WAIT, "GET /wait HTTP/1.0\r\n\r\n", "POST /wait HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\nhi"]
    {
        for reset in [false, true] {
            let stream = server.send(request).await;
            assert_eq!(server.next_event().await, "handler started");
            if reset {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
            drop(stream);
            assert_eq!(server.next_event().await, "handler dropped");
        }
    }
}

#[tokio::test]
async fn b100_a_half_closed_client_counts_as_gone() {
    let mut server = Server::start(patient()).await;
    let mut stream = server.send(WAIT).await;
    assert_eq!(server.next_event().await, "handler started");
    stream.shutdown().await.unwrap();
    assert_eq!(server.next_event().await, "handler dropped");
    assert_eq!(read_to_end(&mut stream).await, "");
}

#[tokio::test]
async fn b100_a_client_that_leaves_while_a_body_streams_drops_the_body() {
    let mut server = Server::start(patient()).await;
    let mut stream = server.send("GET /stream HTTP/1.1\r\nhost: t\r\n\r\n").await;
    read_until(&mut stream, "\r\nx\r\n").await;
    drop(stream);
    assert_eq!(server.next_event().await, "body dropped");
}

/// Runs all that hyper's client starts inside one group, so that the test can end it like a dying process.
#[derive(Clone)]
struct InGroup(TaskGroup);

impl<F> hyper::rt::Executor<F> for InGroup
where
    F: Future + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn_named("hyper", drop_result(future));
    }
}

async fn http2_client(
    server: &Server,
    group: &TaskGroup,
) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
    let io = TokioIo::new(server.connect().await);
    let (sender, connection) =
        hyper::client::conn::http2::handshake(InGroup(group.clone()), io).await.unwrap();
    group.spawn("client", OnError::Log, connection);
    sender
}

#[tokio::test]
async fn b100_a_reset_http2_stream_drops_its_handler_and_a_lost_connection_all_of_them() {
    let mut server = Server::start(patient()).await;
    let clients = TaskGroup::new();
    let mut sender = http2_client(&server, &clients).await;
    let mut start = |path: &str| {
        sender.send_request(Request::get(format!("http://t{path}")).body(Full::<Bytes>::default()).unwrap())
    };

    let reset = clients.spawn_named("reset", drop_result(start("/wait")));
    assert_eq!(server.next_event().await, "handler started");
    reset.abort();
    assert_eq!(server.next_event().await, "handler dropped");

    clients.spawn_named("lost", drop_result(start("/wait")));
    assert_eq!(server.next_event().await, "handler started");
    assert!(!clients.shutdown(Duration::ZERO).await.is_empty());
    assert_eq!(server.next_event().await, "handler dropped");
}

async fn drop_result<F: Future>(future: F) {
    future.await;
}

#[tokio::test]
async fn a_head_too_large_or_too_long_is_answered_with_431() {
    let server = Server::start(HttpServerOptions { max_headers: 20, ..patient() }).await;
    let large = format!("GET / HTTP/1.1\r\nhost: t\r\nx: {}\r\n\r\n", "y".repeat(70_000));
    let many = format!("GET / HTTP/1.1\r\nhost: t\r\n{}\r\n", "x: y\r\n".repeat(30));
    for request in [large, many] {
        let mut stream = server.send(&request).await;
        let answer = read_to_end(&mut stream).await;
        assert!(answer.starts_with("http/1.1 431 "), "{answer}");
    }
    assert!(server.ask("/").await.ends_with("fine"));
}

#[tokio::test]
async fn b153_connections_that_never_complete_a_head_are_closed() {
    let short = Duration::from_millis(50);
    let server =
        Server::start(HttpServerOptions { header_read_timeout: short, drain_idle: short, ..patient() }).await;
    // Nothing; half a head; the beginning of HTTP/2's preface; all of it but no request.
    for sent in
        ["", "GET / HTTP/1.1\r\nx", "PRI * HT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"]
    {
        let mut stream = server.send(sent).await;
        let answer = read_to_end(&mut stream).await;
        assert!(!answer.contains("200"), "{answer}");
    }
    assert_eq!(server.group.live(), 1, "only the server itself is left");
}

#[tokio::test]
async fn b153_a_client_that_never_reads_its_stream_is_closed() {
    let options = HttpServerOptions { write_stall_timeout: Duration::from_millis(50), ..patient() };
    let mut server = Server::start(options).await;
    let _never_read = server.send("GET /flood HTTP/1.1\r\nhost: t\r\n\r\n").await;
    assert_eq!(server.next_event().await, "body dropped");
}

#[tokio::test]
async fn a_panic_in_a_handler_leaves_the_server_alive() {
    let server = Server::start(patient()).await;
    assert_eq!(server.ask("/panic").await, "", "the connection ends without an answer");
    assert!(server.ask("/").await.ends_with("fine"));
    assert_eq!(server.group.failure(), None);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let mut server = Server::start(HttpServerOptions { max_connections: 1, ..patient() }).await;
    let first = server.send(WAIT).await;
    assert_eq!(server.next_event().await, "handler started");
    let mut second = server.send("GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n").await;
    assert_eq!(server.group.live(), 2, "the server and one connection");
    drop(first);
    assert_eq!(server.next_event().await, "handler dropped");
    assert!(read_to_end(&mut second).await.ends_with("fine"));
}

#[tokio::test]
async fn a_request_knows_its_peer() {
    let server = Server::start(patient()).await;
    let mut stream = server.send("GET /peer HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n").await;
    let own = stream.local_addr().unwrap().to_string();
    assert!(read_to_end(&mut stream).await.ends_with(&own));
}

#[tokio::test]
async fn b101_what_is_in_flight_at_shutdown_is_answered_and_told_to_close() {
    let mut server = Server::start(patient()).await;
    let mut waiting = server.send(WAIT).await;
    assert_eq!(server.next_event().await, "handler started");
    server.shutdown.cancel();
    // Nobody is accepted any more: the port is closed while the old request still waits.
    while TcpStream::connect(server.address).await.is_ok() {}
    server.release.notify_one();
    let answer = read_to_end(&mut waiting).await;
    assert!(answer.contains("connection: close") && answer.ends_with("waited"), "{answer}");
    assert_eq!(server.end().await, Drained { cut: 0 });
}

#[tokio::test]
async fn b101_a_request_on_an_idle_connection_at_shutdown_is_answered_not_reset() {
    let server = Server::start(HttpServerOptions { drain_idle: PATIENCE, ..patient() }).await;
    let mut idle = server.send("GET / HTTP/1.1\r\nhost: t\r\n\r\n").await;
    read_until(&mut idle, "fine").await;
    server.shutdown.cancel();
    while TcpStream::connect(server.address).await.is_ok() {}
    // Many turns of the server's timers: what would close at once has closed by then.
    let closing = tokio::time::timeout(Duration::from_millis(50), idle.read_u8()).await;
    assert!(closing.is_err(), "the grace is longer than this test");
    idle.write_all(b"GET / HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    let answer = read_to_end(&mut idle).await;
    assert!(answer.contains("connection: close") && answer.ends_with("fine"), "{answer}");
    assert_eq!(server.end().await, Drained { cut: 0 });
}

#[tokio::test]
async fn b101_a_connection_that_the_kernel_had_completed_at_shutdown_is_answered() {
    use std::io::Write;
    let server = Server::start(patient()).await;
    // Without a point to yield at, the server cannot accept before it is told to stop.
    let mut early = std::net::TcpStream::connect(server.address).unwrap();
    early.write_all(b"GET / HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    server.shutdown.cancel();
    early.set_nonblocking(true).unwrap();
    let answer = read_to_end(&mut TcpStream::from_std(early).unwrap()).await;
    assert!(answer.contains("connection: close") && answer.ends_with("fine"), "{answer}");
    assert_eq!(server.end().await, Drained { cut: 0 });
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_the_shutdown() {
    let server = Server::start(HttpServerOptions { drain_idle: Duration::ZERO, ..patient() }).await;
    let mut idle = server.send("GET / HTTP/1.1\r\nhost: t\r\n\r\n").await;
    read_until(&mut idle, "fine").await;
    let _silent = server.connect().await;
    assert_eq!(server.end().await, Drained { cut: 0 });
    assert_eq!(read_to_end(&mut idle).await, "");
}

#[tokio::test]
async fn a_stream_that_outlives_the_drain_is_cut_and_counted() {
    let mut server = Server::start(HttpServerOptions { drain: Duration::ZERO, ..patient() }).await;
    let mut stream = server.send("GET /stream HTTP/1.1\r\nhost: t\r\n\r\n").await;
    read_until(&mut stream, "\r\nx\r\n").await;
    server.shutdown.cancel();
    assert_eq!(server.next_event().await, "body dropped");
    read_to_end(&mut stream).await;
    assert_eq!(server.end().await, Drained { cut: 1 });
}

#[tokio::test]
async fn http2_streams_in_flight_finish_after_shutdown() {
    let mut server = Server::start(patient()).await;
    let clients = TaskGroup::new();
    let mut sender = http2_client(&server, &clients).await;
    let request = Request::get("http://t/wait").body(Full::<Bytes>::default()).unwrap();
    let asking = sender.send_request(request);
    assert_eq!(server.next_event().await, "handler started");
    server.shutdown.cancel();
    while TcpStream::connect(server.address).await.is_ok() {}
    server.release.notify_one();
    let body = within(asking).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "waited");
    drop(sender);
    assert_eq!(server.end().await, Drained { cut: 0 });
}
