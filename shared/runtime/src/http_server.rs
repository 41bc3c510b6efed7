//! The HTTP server under every service: HTTP/1 and HTTP/2 on one port, with limits on what a connection may cost and an
//! end that cuts no answer short.
//!
//! Must not know routes, bodies or status codes: it serves any `tower` service (an `axum::Router` as it is). Readiness
//! is the caller's: make it fail before the `shutdown` token is cancelled, so that balancers stop sending.
//!
//! What a service may rely on:
//! - **A client that goes away drops the request's future, or its response body, at once**, on FIN, RST and HTTP/2
//!   `RST_STREAM`. A client that shuts down only its sending side counts as gone: over TCP the two look the same.
//!   Over HTTP/1 this needs the request's body to be read to its end first, and no pipelined request behind it.
//! - A panic ends its connection (HTTP/1) or its stream (HTTP/2) and is logged; the server goes on.
//! - Every request carries a [`PeerAddress`] extension.

mod connection;
mod stall;

use crate::tasks::TaskGroup;
use connection::Acceptance;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;
use tower::Service;

/// An error of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Who sent a request; in every request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

/// Limits of a server. Each one bounds what one client, or all of them, may hold.
#[derive(Clone, Debug)]
pub struct HttpServerOptions {
    /// Connections at a time; further ones wait in the kernel's backlog.
    pub max_connections: usize,
    /// Bytes of one request's head; more is answered with 431. At least 8,192.
    pub max_header_bytes: usize,
    /// Header lines of one HTTP/1 request; more is answered with 431.
    pub max_headers: usize,
    /// A head must be complete this long after its connection could first send it. So it is also the life of a
    /// connection that sends nothing, and of an idle one between two requests.
    pub header_read_timeout: Duration,
    /// A connection whose peer accepts no byte of an answer for this long is closed.
    pub write_stall_timeout: Duration,
    /// HTTP/2 requests at a time on one connection.
    pub max_concurrent_streams: u32,
    /// TCP and HTTP/2 keep-alive probes start after this long without traffic.
    pub keepalive: Duration,
    /// After `shutdown`, idle HTTP/1 connections stay open this long, so that a request already on its way is answered
    /// (with `Connection: close`) and not reset.
    pub drain_idle: Duration,
    /// After `shutdown`, requests in flight have this long to end; then their connections are dropped.
    pub drain: Duration,
}

impl Default for HttpServerOptions {
    fn default() -> Self {
        Self {
            max_connections: 16_384,
            max_header_bytes: 64 * 1024,
            max_headers: 128,
            header_read_timeout: Duration::from_secs(30),
            write_stall_timeout: Duration::from_secs(60),
            max_concurrent_streams: 256,
            keepalive: Duration::from_secs(30),
            drain_idle: Duration::from_secs(1),
            drain: Duration::from_secs(30),
        }
    }
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections, and HTTP/2 streams, that were still busy at the end of the drain and were dropped.
    pub cut: usize,
}

/// Serves `listener` until `shutdown` is cancelled, then stops accepting, lets the requests in flight end (see the
/// options' `drain` and `drain_idle`) and resolves. Dropping the future begins the drain and leaves it to `group`'s own
/// shutdown.
///
/// Each connection is a task `http/connection` of `group`, but hears only `shutdown`, not `group`'s token: servers have
/// their own place in the order of shutdown.
pub fn serve<S, B>(
    listener: TcpListener,
    service: S,
    options: HttpServerOptions,
    group: &TaskGroup,
    shutdown: CancellationToken,
) -> impl Future<Output = Drained> + Send + use<S, B>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError> + Send,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let draining = CancellationToken::new();
    let mut server = Server {
        permits: Arc::new(Semaphore::new(options.max_connections.clamp(1, Semaphore::MAX_PERMITS))),
        connections: group.child_with_token("http", draining.clone()),
        options: Arc::new(options),
        service,
    };
    async move {
        let begin_drain = draining.drop_guard();
        server.accept_until(&listener, &shutdown).await;
        drop(begin_drain);
        // Ends with `WouldBlock` when there is none left; any other error loses only what was lost anyway.
        let _ = server.accept_backlog(listener);
        Drained { cut: server.connections.shutdown(server.options.drain).await.len() }
    }
}

struct Server<S> {
    permits: Arc<Semaphore>,
    connections: TaskGroup,
    options: Arc<HttpServerOptions>,
    service: S,
}

impl<S, B> Server<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError> + Send,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    // `&mut` so that the future is `Send` without asking `Sync` of the service.
    async fn accept_until(&mut self, listener: &TcpListener, shutdown: &CancellationToken) {
        let accepting = async move {
            // The semaphore is never closed, so the permit always comes.
            while let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await {
                match listener.accept().await {
                    Ok((stream, peer)) => self.start(stream, peer, permit),
                    Err(error) => back_off(&error).await,
                }
            }
        };
        // `None` means that the token came first, which is the only way out.
        let _ = shutdown.run_until_cancelled(accepting).await;
    }

    /// Connections that the kernel has completed already would be reset with the listener: take them along. Asks the
    /// kernel itself, because the runtime may not have heard of them yet.
    fn accept_backlog(&self, listener: TcpListener) -> io::Result<()> {
        let listener = listener.into_std()?;
        while let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            let (stream, peer) = listener.accept()?;
            stream.set_nonblocking(true)?;
            self.start(TcpStream::from_std(stream)?, peer, permit);
        }
        Ok(())
    }

    fn start(&self, stream: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) {
        let acceptance = Acceptance {
            stream,
            peer,
            options: Arc::clone(&self.options),
            streams: self.connections.clone(),
            draining: self.connections.shutdown_token(),
        };
        let service = self.service.clone();
        self.connections.spawn_named("connection", async move {
            let _permit = permit;
            acceptance.run(service).await;
        });
    }
}

async fn back_off(error: &io::Error) {
    if let Some(wait) = accept_pause(error) {
        tracing::warn!(%error, wait_ms = wait.as_millis(), "cannot accept connections: check the limit of open files");
        tokio::time::sleep(wait).await;
    }
}

/// How long to wait after a failed accept. Errors of the one connection cost nothing; any other (out of descriptors or
/// memory) lasts until something is closed, and trying at once would spin.
fn accept_pause(error: &io::Error) -> Option<Duration> {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    match error.kind() {
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted => None,
        _ => Some(Duration::from_millis(200)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b153_running_out_of_descriptors_pauses_but_one_bad_connection_does_not() {
        let too_many_open_files = io::Error::from_raw_os_error(24);
        assert!(accept_pause(&too_many_open_files).is_some());
        assert_eq!(accept_pause(&io::Error::from(io::ErrorKind::ConnectionAborted)), None);
    }
}
