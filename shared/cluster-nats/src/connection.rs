//! One connection to the servers: made, watched, asked for a round trip, closed.
//!
//! Must not know the port's calls (`bus` does). Everything that holds the connection shares a [`Wire`].

use crate::{
    NatsError, NatsOptions,
    bus::NatsResponder,
    credentials::Credentials,
    headers::{HEADER_ROOM, to_nats},
    inbox::{Inbox, Reply},
    monitor::Monitor,
    subscriptions::{LIBRARY_QUEUE, Subscriptions},
    tls::with_tls,
};
use async_nats::{
    Client, ConnectOptions, PublishErrorKind, Subject, Subscriber, client::traits::Publisher,
    connection::State, message::OutboundMessage,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use switchtower_cluster::{BusError, ClusterName, Headers, PortHealth, Responder};
use switchtower_runtime::{
    CancellationToken,
    retry::{Backoff, RetryTimes},
};
use tokio::time::timeout;

/// How many messages may wait to be written. Each may have the size of the largest payload, so this is not large.
const SEND_QUEUE: usize = 128;

/// Longest prefix of subjects: with the longest subject of the port it stays below what servers take (4096 bytes for
/// everything on one line).
const MAX_PREFIX_BYTES: usize = 1_024;

/// A client, and what belongs to it.
pub(crate) struct Wire {
    client: Client,
    monitor: Arc<Monitor>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    /// What stands before every subject of the cluster, with the dot.
    prefix: String,
    call_limit: Duration,
    max_payload_bytes: usize,
    ended: CancellationToken,
}

impl Wire {
    /// Begins to connect, and goes on in the background. Also gives the subscription that feeds the inbox.
    pub(crate) async fn connect(
        options: NatsOptions,
        cluster: &ClusterName,
    ) -> Result<(Arc<Self>, Subscriber), NatsError> {
        let servers = options.check()?;
        let cluster = cluster.escaped();
        if cluster.len() + "switchtower..".len() > MAX_PREFIX_BYTES {
            let limit = MAX_PREFIX_BYTES - "switchtower..".len();
            return Err(NatsError::ClusterName { bytes: cluster.len(), limit });
        }
        let credentials = Credentials::new(&options)?;
        let id = uuid::Uuid::new_v4().simple();
        let inbox = Arc::new(Inbox::new(format!("_INBOX.switchtower.{cluster}.{id}")));
        let subscriptions = Arc::new(Subscriptions::new());
        let monitor = Monitor::new(credentials.setting(), Arc::clone(&inbox), Arc::clone(&subscriptions));
        let monitor = Arc::new(monitor);
        let refused = |error: String| NatsError::Client { reason: error };
        let client = connect_options(&options, credentials, &monitor)?
            .name(format!("switchtower/{cluster}"))
            .connect(servers)
            .await
            .map_err(|error| refused(error.to_string()))?;
        let opened = subscriptions.open(&client, inbox.pattern(), None).await;
        let (_, replies) = opened.map_err(|error| refused(error.to_string()))?;
        let wire = Self {
            client,
            monitor,
            inbox,
            subscriptions,
            prefix: format!("switchtower.{cluster}."),
            call_limit: options.call_limit,
            max_payload_bytes: options.max_payload_bytes,
            ended: CancellationToken::new(),
        };
        Ok((Arc::new(wire), replies))
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// A subject or pattern as the server knows it.
    pub(crate) fn absolute(&self, subject: &str) -> String {
        format!("{}{subject}", self.prefix)
    }

    /// A server's subject as the port knows it, if it is the cluster's.
    pub(crate) fn relative<'subject>(&self, subject: &'subject str) -> Option<&'subject str> {
        subject.strip_prefix(&self.prefix)
    }

    /// How many connections there have been, this one included.
    pub(crate) fn connections(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    pub(crate) fn max_payload(&self) -> usize {
        self.max_payload_bytes.min(self.client.max_payload().saturating_sub(HEADER_ROOM))
    }

    pub(crate) fn check_size(&self, subject: &str, payload: &Bytes) -> Result<(), BusError> {
        let limit = self.max_payload();
        if payload.len() <= limit {
            return Ok(());
        }
        Err(BusError::TooLarge { subject: subject.to_owned(), bytes: payload.len(), limit })
    }

    pub(crate) fn health(&self) -> PortHealth {
        // The library's own word: its events are late, and some are lost under load.
        PortHealth { connected: self.is_connected(), ..self.monitor.health.now() }
    }

    fn is_connected(&self) -> bool {
        !self.monitor.closed.is_cancelled() && self.client.connection_state() == State::Connected
    }

    pub(crate) fn check_connected(&self, operation: &'static str) -> Result<(), BusError> {
        if self.is_connected() {
            return Ok(());
        }
        Err(self.unavailable(operation))
    }

    /// The error of a call that cannot be served now.
    pub(crate) fn unavailable(&self, operation: &'static str) -> BusError {
        let reason = if self.monitor.closed.is_cancelled() {
            "the connection was closed".to_owned()
        } else if self.is_connected() {
            "the server does not answer".to_owned()
        } else {
            let said = self.monitor.health.now().last_error;
            said.unwrap_or_else(|| "not connected yet".to_owned())
        };
        BusError::Unavailable { operation, reason }
    }

    /// `future`, for as long as a call may take.
    pub(crate) async fn in_time<F: Future>(
        &self,
        operation: &'static str,
        future: F,
    ) -> Result<F::Output, BusError> {
        timeout(self.call_limit, future).await.map_err(|_| self.unavailable(operation))
    }

    /// Hands a message to the connection. What does not fit into its queue in time is not sent.
    pub(crate) async fn send(&self, operation: &'static str, outgoing: Outgoing) -> Result<(), BusError> {
        self.check_connected(operation)?;
        let bytes = outgoing.payload.len();
        let message = OutboundMessage {
            subject: outgoing.to.clone(),
            reply: outgoing.reply,
            headers: (!outgoing.headers.is_empty()).then(|| to_nats(&outgoing.headers)),
            payload: outgoing.payload,
        };
        let sent = self.in_time(operation, self.client.publish_message(message)).await?;
        sent.map_err(|error| match error.kind() {
            // The limit fell since it was checked: another server.
            PublishErrorKind::MaxPayloadExceeded => {
                BusError::TooLarge { subject: outgoing.to.to_string(), bytes, limit: self.max_payload() }
            }
            PublishErrorKind::InvalidSubject | PublishErrorKind::Send => self.unavailable(operation),
        })
    }

    /// Sends a message to ourselves and waits for it: whatever went to the server before has been dealt with by then.
    pub(crate) async fn round_trip(&self, operation: &'static str) -> Result<(), BusError> {
        let waiting = self.inbox.expect(self.connections());
        let outgoing = Outgoing::new(waiting.subject());
        let there_and_back = async {
            self.send(operation, outgoing).await?;
            match waiting.reply().await {
                Reply::Answer(_) => Ok(()),
                Reply::NoResponders | Reply::Lost => Err(self.unavailable(operation)),
            }
        };
        self.in_time(operation, there_and_back).await?
    }

    pub(crate) fn responder(self: &Arc<Self>, subject: &str, reply: Subject) -> Arc<dyn Responder> {
        Arc::new(NatsResponder { wire: Arc::clone(self), subject: subject.to_owned(), reply })
    }

    /// Waits for the end of the bus.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Ends it at once: nobody uses it any more.
    pub(crate) fn end(&self) {
        self.monitor.closed.cancel();
        self.ended.cancel();
    }

    /// Ends it after everything that was published has reached the server, or cannot.
    pub(crate) async fn close(&self) {
        // An error is the second case.
        let _ = self.round_trip("close the connection").await;
        self.monitor.closed.cancel();
        let _ = timeout(self.call_limit, self.client.drain()).await;
        self.ended.cancel();
    }
}

/// What [`Wire::send`] sends.
pub(crate) struct Outgoing {
    pub(crate) to: Subject,
    pub(crate) reply: Option<Subject>,
    pub(crate) headers: Headers,
    pub(crate) payload: Bytes,
}

impl Outgoing {
    /// An empty message.
    pub(crate) fn new(to: impl Into<Subject>) -> Self {
        Self { to: to.into(), reply: None, headers: Headers::new(), payload: Bytes::new() }
    }
}

fn connect_options(
    options: &NatsOptions,
    credentials: Credentials,
    monitor: &Arc<Monitor>,
) -> Result<ConnectOptions, NatsError> {
    let (events, attempts) = (Arc::clone(monitor), Arc::clone(monitor));
    let delays = Delays::new(options.retry_times());
    let library = ConnectOptions::with_auth_callback(move |nonce| {
        let auth = credentials.auth(&nonce);
        async move { auth }
    })
    .retry_on_initial_connect()
    .connection_timeout(options.connect_timeout)
    .ping_interval(options.ping_interval)
    .subscription_capacity(LIBRARY_QUEUE)
    .client_capacity(SEND_QUEUE)
    .reconnect_delay_callback(move |attempt| delays.before(attempt))
    .reconnect_to_server_callback(move |servers, _| {
        let monitor = Arc::clone(&attempts);
        async move {
            monitor.attempt(servers).await;
            None
        }
    })
    .event_callback(move |event| {
        events.event(event);
        std::future::ready(())
    });
    match &options.tls {
        Some(files) => with_tls(library, files),
        None => Ok(library),
    }
}

/// How long to wait before an attempt to connect.
struct Delays {
    backoff: Mutex<Backoff>,
    began: AtomicBool,
}

impl Delays {
    fn new(times: RetryTimes) -> Self {
        Self { backoff: Mutex::new(Backoff::new(times)), began: AtomicBool::new(false) }
    }

    /// Before the `attempt`th since the last connection, counted from 1. The first of all does not wait. The first after a
    /// connection does: a server that accepts and drops connections at once is not to be asked without pause.
    fn before(&self, attempt: usize) -> Duration {
        if !self.began.swap(true, Ordering::Relaxed) {
            return Duration::ZERO;
        }
        let mut backoff = self.backoff.lock();
        if attempt <= 1 {
            backoff.reset();
        }
        backoff.next_delay()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_attempt_is_made_at_once_and_all_others_wait() {
        let first = Duration::from_millis(100);
        let delays = Delays::new(RetryTimes { first, max: Duration::from_secs(5) });
        assert_eq!(delays.before(1), Duration::ZERO);
        assert!((2..50).all(|attempt| delays.before(attempt) >= first / 2));
        assert!(delays.before(50) > first * 2);
        // After a connection they start over, and still wait.
        assert!((first / 2..first * 2).contains(&delays.before(1)));
    }
}
