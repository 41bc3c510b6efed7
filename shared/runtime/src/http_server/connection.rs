//! One accepted connection: set up its socket, drive hyper on it, and end it in an orderly way.
//!
//! Must not decide when to drain; it follows the token. Called by the server's accept loop.

use super::{BoxError, HttpServerOptions, PeerAddress, stall::StallGuard};
use crate::tasks::TaskGroup;
use http::{HeaderValue, Request, Response, Version, header::CONNECTION};
use http_body::Body;
use hyper::{body::Incoming, rt::Executor};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulConnection},
};
use std::{
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpStream, time::Instant};
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};

/// A connection as it comes from the listener.
pub(super) struct Acceptance {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) options: Arc<HttpServerOptions>,
    /// Where HTTP/2 streams run.
    pub(super) streams: TaskGroup,
    pub(super) draining: CancellationToken,
}

impl Acceptance {
    /// Serves the connection to its end.
    pub(super) async fn run<S, B>(self, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Error: Into<BoxError> + Send,
        S::Future: Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        prepare(&self.stream, &self.options);
        let spoken = Arc::new(Spoken::default());
        let service = ConnectionService {
            inner: service,
            peer: self.peer,
            spoken: Arc::clone(&spoken),
            draining: self.draining.clone(),
        };
        let io = StallGuard::new(TokioIo::new(self.stream), self.options.write_stall_timeout);
        let builder = builder(&self.options, self.streams);
        let connection = builder.serve_connection(io, service);
        if let Err(error) = drive(connection, &spoken, &self.draining, &self.options).await {
            tracing::debug!(peer = %self.peer, error = %error, "connection ended early");
        }
    }
}

/// Polls a connection to its end, and brings that about when it is due: for a peer that asks nothing within
/// `header_read_timeout` (hyper's own limit starts only when it knows the version), and when draining. Returning drops
/// the connection.
async fn drive<C>(
    connection: C,
    spoken: &Spoken,
    draining: &CancellationToken,
    options: &HttpServerOptions,
) -> Result<(), C::Error>
where
    C: GracefulConnection,
{
    let mut connection = pin!(connection);
    let mut patience = pin!(tokio::time::sleep(options.header_read_timeout));
    let (mut waiting, mut drain_seen, mut told_to_end) = (true, false, false);
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = draining.cancelled(), if !drain_seen => {
                drain_seen = true;
                // GOAWAY loses nothing. HTTP/1 has none: an idle connection first gets its grace.
                let grace = if spoken.version() == Some(Version::HTTP_2) { Duration::ZERO } else { options.drain_idle };
                patience.as_mut().reset(Instant::now() + grace);
                waiting = true;
            }
            () = patience.as_mut(), if waiting => {
                let never_asked = spoken.version().is_none();
                if never_asked && told_to_end {
                    return Ok(());
                }
                waiting = never_asked;
                if never_asked || drain_seen {
                    told_to_end = true;
                    connection.as_mut().graceful_shutdown();
                    patience.as_mut().reset(Instant::now() + options.drain_idle);
                }
            }
        }
    }
}

/// Socket options are an improvement, not a condition: a peer that is gone already makes them fail.
fn prepare(stream: &TcpStream, options: &HttpServerOptions) {
    let keepalive = socket2::TcpKeepalive::new().with_time(options.keepalive);
    let prepared =
        stream.set_nodelay(true).and_then(|()| socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive));
    if let Err(error) = prepared {
        tracing::debug!(%error, "cannot set socket options");
    }
}

fn builder(options: &HttpServerOptions, streams: TaskGroup) -> Builder<StreamExecutor> {
    /// The least that hyper accepts.
    const LEAST_HEADER_BYTES: usize = 8_192;
    let header_bytes = options.max_header_bytes.max(LEAST_HEADER_BYTES);
    let mut builder = Builder::new(StreamExecutor { streams });
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_read_timeout)
        .half_close(false)
        .max_buf_size(header_bytes)
        .max_headers(options.max_headers);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.max_concurrent_streams)
        .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(options.keepalive)
        .keep_alive_timeout(options.keepalive);
    builder
}

/// Runs HTTP/2 streams as named tasks of the server's group.
#[derive(Clone)]
struct StreamExecutor {
    streams: TaskGroup,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
{
    fn execute(&self, future: F) {
        self.streams.spawn_named("stream", async move {
            future.await;
        });
    }
}

/// What the peer has been heard to speak.
#[derive(Default)]
struct Spoken(AtomicU8);

impl Spoken {
    fn heard(&self, version: Version) {
        self.0.store(if version == Version::HTTP_2 { 2 } else { 1 }, Ordering::Relaxed);
    }

    /// `None` until the first request.
    fn version(&self) -> Option<Version> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            2 => Some(Version::HTTP_2),
            _ => Some(Version::HTTP_11),
        }
    }
}

/// The caller's service as this connection sees it.
struct ConnectionService<S> {
    inner: S,
    peer: SocketAddr,
    spoken: Arc<Spoken>,
    draining: CancellationToken,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for ConnectionService<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Send,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.spoken.heard(request.version());
        request.extensions_mut().insert(PeerAddress(self.peer));
        // HTTP/2 forbids the header and has GOAWAY instead.
        let says_close = request.version() != Version::HTTP_2;
        let draining = self.draining.clone();
        let answer = self.inner.clone().oneshot(request);
        Box::pin(async move {
            let mut response = answer.await?;
            if says_close && draining.is_cancelled() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn accepted_sockets_send_small_writes_at_once_and_probe_silent_peers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        prepare(&accepted, &HttpServerOptions::default());
        assert!(accepted.nodelay().unwrap() && socket2::SockRef::from(&accepted).keepalive().unwrap());
        drop(client);
    }
}
