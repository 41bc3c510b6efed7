//! The HTTP client that talks to workers: plain HTTP/1.1 with pooled connections.
//!
//! Must not retry on its own what a server may have seen, and must not put a limit on a response's duration: a
//! generation may run for minutes, so the caller owns that deadline. Called by the front end and by tests of servers.

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use std::{io, time::Duration};

/// A pool of plain HTTP/1.1 connections. Cheap to clone; all clones share the pool. The connections' own tasks end when
/// they are closed or when the last clone is dropped, so they need no place in a task group.
pub type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// Limits of an [`HttpClient`].
#[derive(Clone, Debug)]
pub struct HttpClientOptions {
    /// How long a TCP connect may take before it counts as failed.
    pub connect_timeout: Duration,
    /// Idle connections kept per worker; more are closed.
    pub max_idle_per_host: usize,
    /// An idle connection is closed after this long. Keep it below the servers' own limit, or requests race with it and
    /// break: uvicorn's, under the engines that are written in Python, is 5 seconds; that of
    /// [`HttpServerOptions`](crate::http_server::HttpServerOptions) is longer.
    pub idle_timeout: Duration,
    /// TCP keep-alive probes start after this long without traffic, so that a peer that vanished is noticed.
    pub tcp_keepalive: Duration,
}

impl Default for HttpClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            max_idle_per_host: 64,
            idle_timeout: Duration::from_secs(4),
            tcp_keepalive: Duration::from_secs(30),
        }
    }
}

/// A client. `TCP_NODELAY` is set: small requests must not wait for acknowledgements.
///
/// A request that meets a pooled connection which the server has just closed is sent again on a new one, if and only if
/// nothing of it had been written.
#[must_use]
pub fn http_client(options: &HttpClientOptions) -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(options.connect_timeout));
    connector.set_keepalive(Some(options.tcp_keepalive));
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(options.idle_timeout)
        .pool_max_idle_per_host(options.max_idle_per_host)
        .build(connector)
}

/// Whether a request failed for want of something on this side: file descriptors, ports, memory. The server has seen
/// nothing of it and is not to blame; asking another one would fail the same way.
#[must_use]
pub fn is_local_shortage(error: &Error) -> bool {
    error.is_connect() && stems_from_shortage(error)
}

fn stems_from_shortage(error: &(dyn std::error::Error + 'static)) -> bool {
    /// Linux' ENOMEM, ENFILE, EMFILE, EADDRNOTAVAIL, ENOBUFS.
    const SHORTAGES: [i32; 5] = [12, 23, 24, 99, 105];
    let chain = std::iter::successors(Some(error), |error| error.source());
    let mut codes = chain.filter_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    codes.any(|code| SHORTAGES.contains(&code))
}

/// Whether a request failed before a connection existed: the server has seen nothing of it, so it may be sent to
/// another one. Any other failure may have reached the server.
#[must_use]
pub fn is_connect_failure(error: &Error) -> bool {
    error.is_connect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use http_body_util::BodyExt;
    use std::net::SocketAddr;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    fn get(address: SocketAddr) -> Request<Full<Bytes>> {
        Request::get(format!("http://{address}/")).body(Full::default()).unwrap()
    }

    #[tokio::test]
    async fn a_refused_connect_is_told_from_a_connection_that_breaks() {
        let client = http_client(&HttpClientOptions::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();

        let break_it = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 16];
            stream.read_exact(&mut request).await.unwrap();
        };
        let (answer, ()) = tokio::join!(client.request(get(address)), break_it);
        assert!(!is_connect_failure(&answer.unwrap_err()));

        drop(listener);
        assert!(is_connect_failure(&client.request(get(address)).await.unwrap_err()));
    }

    #[test]
    fn a_shortage_of_our_own_is_told_from_a_server_that_refuses() {
        #[derive(Debug, thiserror::Error)]
        #[error("connecting")]
        struct Connecting(#[source] io::Error);

        let stems = |code| stems_from_shortage(&Connecting(io::Error::from_raw_os_error(code)));
        assert!([24, 23, 99].into_iter().all(stems), "out of descriptors, or of ports");
        assert!(![111, 104, 110, 113].into_iter().any(stems), "refused, reset, timed out, no route");
    }

    #[tokio::test]
    async fn an_answer_is_read_and_the_connection_used_again() {
        let client = http_client(&HttpClientOptions::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve_two = async {
            // One accepted connection answers both requests: a second connect would never be accepted.
            let (mut stream, _) = listener.accept().await.unwrap();
            for _ in 0..2 {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            }
        };
        let ask_twice = async {
            for _ in 0..2 {
                let answer = client.request(get(address)).await.unwrap();
                assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
            }
        };
        tokio::join!(serve_two, ask_twice);
    }
}
