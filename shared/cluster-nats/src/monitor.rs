//! What happens to the connection, as the client library tells it: written down for health, said in the log once.
//!
//! The library's own log is off (it spells out payloads), so what a person must know is said here. Must not say the same
//! thing at every attempt, and must not show a credential.

use crate::{inbox::Inbox, subscriptions::Subscriptions};
use async_nats::{Event, Server};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use switchtower_cluster::HealthRecord;
use switchtower_runtime::{CancellationToken, retry::Failures};

/// How the log calls this connection.
const NAME: &str = "nats";

/// How it calls what is done again and again without it.
const ATTEMPT: &str = "connecting to nats";

/// What to do about a refusal.
const NEEDED_RIGHTS: &str = "the server refuses a subject: let the user publish and subscribe to \
                             `switchtower.CLUSTER.>` and `_INBOX.switchtower.CLUSTER.>`";

/// Longest error text that is kept.
const MAX_ERROR_CHARS: usize = 400;

/// Hears everything about one client.
pub(crate) struct Monitor {
    pub(crate) health: HealthRecord,
    /// Cancelled when the bus is closed for good.
    pub(crate) closed: CancellationToken,
    /// What the server is told: the name of the setting.
    credentials: &'static str,
    failures: Mutex<Failures>,
    /// What the server said on this connection, which explains why it ends.
    server_said: Mutex<Option<String>>,
    disconnects: AtomicU64,
    inbox: Arc<Inbox>,
    subscriptions: Arc<Subscriptions>,
}

impl Monitor {
    pub(crate) fn new(
        credentials: &'static str,
        inbox: Arc<Inbox>,
        subscriptions: Arc<Subscriptions>,
    ) -> Self {
        Self {
            health: HealthRecord::default(),
            closed: CancellationToken::new(),
            credentials,
            failures: Mutex::default(),
            server_said: Mutex::default(),
            disconnects: AtomicU64::new(0),
            inbox,
            subscriptions,
        }
    }

    /// One event of the library.
    pub(crate) fn event(&self, event: Event) {
        match event {
            Event::Connected => self.connected(),
            Event::Disconnected => self.disconnected(),
            Event::SlowConsumer(number) => self.subscriptions.count_lost(number),
            Event::ServerError(error) => self.server_error(&error.to_string()),
            Event::LameDuckMode => tracing::info!(what = NAME, "the server is about to shut down"),
            // Failed attempts are described by `attempt`; the rest is our own doing.
            Event::ClientError(_) | Event::Draining | Event::Closed => {}
        }
    }

    /// The library is about to connect to one of these. Says why the attempt before failed.
    pub(crate) async fn attempt(&self, servers: Vec<Server>) {
        if self.closed.is_cancelled() {
            // The library has no other way to be told to stop trying.
            std::future::pending::<()>().await;
        }
        let reasons: Vec<String> = servers
            .iter()
            .filter_map(|server| Some(self.describe(server, server.last_error.as_deref()?)))
            .collect();
        if !reasons.is_empty() {
            self.failed(&format!("cannot connect: {}", reasons.join("; ")));
        }
    }

    fn connected(&self) {
        self.server_said.lock().take();
        self.health.connected();
        self.failures.lock().succeeded(ATTEMPT);
        tracing::debug!(what = NAME, "connected");
    }

    fn disconnected(&self) {
        let lost = self.disconnects.fetch_add(1, Ordering::Relaxed) + 1;
        self.inbox.lose(lost);
        if self.closed.is_cancelled() {
            return;
        }
        match self.server_said.lock().take() {
            Some(said) => self.failed(&format!("the server ended the connection: {said}")),
            None => self.failed("the connection was lost"),
        }
    }

    fn server_error(&self, error: &str) {
        if error.contains("Permissions Violation") {
            tracing::warn!(what = NAME, error, "{NEEDED_RIGHTS}");
        } else {
            tracing::warn!(what = NAME, error, "the server reports an error");
        }
        self.health.error(shortened(error));
        *self.server_said.lock() = Some(error.to_owned());
    }

    fn failed(&self, error: &str) {
        let error = shortened(error);
        self.failures.lock().failed(ATTEMPT, &error);
        self.health.disconnected(error);
    }

    fn describe(&self, server: &Server, error: &str) -> String {
        let address = server.addr.as_url_str();
        if error.contains("authorization violation") {
            return format!("`{address}` does not accept {} (authorization violation)", self.credentials);
        }
        format!("`{address}`: {error}")
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_ERROR_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_nats::ServerError;

    fn monitor() -> Monitor {
        Monitor::new("token", Arc::new(Inbox::new("i".to_owned())), Arc::new(Subscriptions::new()))
    }

    #[test]
    fn health_follows_the_events_and_says_what_the_server_said() {
        let monitor = monitor();
        monitor.event(Event::Connected);
        assert!(monitor.health.now().connected);
        monitor.event(Event::ServerError(ServerError::Other("Stale Connection".to_owned())));
        assert!(monitor.health.now().connected, "an error alone ends no connection");
        monitor.event(Event::Disconnected);
        let health = monitor.health.now();
        assert!(!health.connected);
        assert_eq!(
            health.last_error.as_deref(),
            Some("the server ended the connection: nats: Stale Connection")
        );
        monitor.event(Event::Connected);
        monitor.event(Event::Disconnected);
        assert_eq!(monitor.health.now().last_error.as_deref(), Some("the connection was lost"));
        assert_eq!(monitor.health.now().reconnects, 1);
    }

    #[tokio::test]
    async fn what_was_asked_on_a_lost_connection_ends() {
        let monitor = monitor();
        monitor.event(Event::Connected);
        let waiting = monitor.inbox.expect(1);
        monitor.event(Event::Disconnected);
        assert_eq!(waiting.reply().await, crate::inbox::Reply::Lost);
    }
}
