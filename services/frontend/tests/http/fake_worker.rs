//! A worker that does what a test says, byte by byte, on a raw socket.

use http::HeaderMap;
use parking_lot::Mutex;
use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc};
use switchtower_runtime::TaskGroup;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

type Script = Arc<dyn Fn(usize, TcpStream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A running fake worker.
#[derive(Clone)]
pub(crate) struct FakeWorker {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    count: Arc<watch::Sender<usize>>,
}

impl FakeWorker {
    /// Starts a worker that reads one request per connection, then does what `script` says with the number of the
    /// request and the socket. The socket is closed when the script drops it.
    pub(crate) async fn start<F, S>(tasks: &TaskGroup, script: S) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
        S: Fn(usize, TcpStream) -> F + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let worker = Self {
            address: listener.local_addr().unwrap(),
            received: Arc::default(),
            count: Arc::new(watch::channel(0).0),
        };
        let script: Script = Arc::new(move |number, stream| Box::pin(script(number, stream)));
        let (served, group) = (worker.clone(), tasks.clone());
        tasks.spawn_until_shutdown("fake worker", async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (worker, script) = (served.clone(), Arc::clone(&script));
                group.spawn_until_shutdown("fake connection", async move {
                    worker.serve(stream, script).await;
                });
            }
        });
        worker
    }

    async fn serve(&self, mut stream: TcpStream, script: Script) {
        let Some(request) = read_request(&mut stream).await else { return };
        let number = {
            let mut received = self.received.lock();
            received.push(request);
            received.len()
        };
        self.count.send_replace(number);
        script(number - 1, stream).await;
    }

    /// All requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }

    /// Waits until so many requests have come.
    pub(crate) async fn wait_for(&self, count: usize) {
        self.count.subscribe().wait_for(|have| *have >= count).await.unwrap();
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Received> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.split("\r\n");
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let mut headers = HeaderMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap();
        headers.append(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    let length = headers.get("content-length").map_or(0, |length| length.to_str().unwrap().parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Received { path, headers, body })
}

/// Writes; a peer that is gone is no mistake of the worker.
pub(crate) async fn write(stream: &mut TcpStream, bytes: impl AsRef<[u8]>) {
    let _ = stream.write_all(bytes.as_ref()).await;
    let _ = stream.flush().await;
}

/// A whole answer with a known length.
pub(crate) async fn answer(mut stream: TcpStream, status: u16, content_type: &str, body: impl AsRef<[u8]>) {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    write(&mut stream, [head.as_bytes(), body].concat()).await;
}

/// A JSON answer.
pub(crate) async fn answer_json(stream: TcpStream, status: u16, json: &str) {
    answer(stream, status, "application/json", json).await;
}

/// The head of a stream of events.
pub(crate) async fn begin_events(stream: &mut TcpStream) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    write(stream, head).await;
}

/// One chunk of a chunked body.
pub(crate) async fn chunk(stream: &mut TcpStream, bytes: impl AsRef<[u8]>) {
    let bytes = bytes.as_ref();
    let framed = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    write(stream, framed).await;
}

/// The end of a chunked body.
pub(crate) async fn end(stream: &mut TcpStream) {
    write(stream, "0\r\n\r\n").await;
}

/// One event with a token.
pub(crate) fn token(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\"}}]}}\n\n")
}

/// A whole stream of so many tokens.
pub(crate) async fn answer_events(mut stream: TcpStream, tokens: usize) {
    begin_events(&mut stream).await;
    for number in 0..tokens {
        chunk(&mut stream, token(&number.to_string())).await;
    }
    chunk(&mut stream, "data: [DONE]\n\n").await;
    end(&mut stream).await;
}

/// A completion that is not streamed, with its usage.
pub(crate) const COMPLETION: &str = r#"{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" ok","finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":7,"total_tokens":10}}"#;

/// Waits until the peer has closed the connection.
pub(crate) async fn closed(stream: &mut TcpStream) {
    let mut byte = [0];
    while !matches!(stream.read(&mut byte).await, Ok(0) | Err(_)) {}
}
