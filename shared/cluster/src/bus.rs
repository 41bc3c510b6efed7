//! The port `EventBus`: messages to whoever listens now, and questions with an answer.
//!
//! Must not promise delivery (rule 3): what must arrive is numbered by its source and repaired by its receiver.
//! Implemented in memory here and on NATS in its adapter; KV events, load reports and snapshots travel on it.

use crate::{Headers, PortHealth, Subscription};
use async_trait::async_trait;
use bytes::Bytes;
use std::{fmt, sync::Arc, time::Duration};

/// Why the bus refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// Nobody listens to the subject of a request.
    #[error("nobody answers on `{subject}`")]
    NoResponders {
        /// The subject.
        subject: String,
    },
    /// No answer came in time; whether the request was seen is not known.
    #[error("no answer on `{subject}` within {deadline_ms} ms")]
    Deadline {
        /// The subject.
        subject: String,
        /// The time given.
        deadline_ms: u128,
    },
    /// A payload beyond [`EventBus::max_payload`].
    #[error("a message of {bytes} bytes on `{subject}` exceeds the limit of {limit}: send it in chunks")]
    TooLarge {
        /// The subject.
        subject: String,
        /// The payload's size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A subject is one or more tokens of printable ASCII without `*` and `>`, joined by dots, at most 1024 bytes;
    /// a pattern may end with the token `>`.
    #[error("subject `{subject}` is not valid: {reason}")]
    InvalidSubject {
        /// What was given.
        subject: String,
        /// What is wrong, and what would be right.
        reason: &'static str,
    },
    /// A header that cannot travel, or one too many.
    #[error("header `{name}` cannot be sent: {reason}")]
    InvalidHeader {
        /// Its name.
        name: String,
        /// What is wrong, and what would be right.
        reason: &'static str,
    },
    /// An answer to a message that asks for none.
    #[error("the message on `{subject}` asks for no answer")]
    NoReplyExpected {
        /// The message's subject.
        subject: String,
    },
    /// The bus cannot be reached now; subscriptions resume by themselves.
    #[error("cannot {operation}: the bus is not reachable ({reason}); try again later")]
    Unavailable {
        /// What was attempted.
        operation: &'static str,
        /// What the connection says.
        reason: String,
    },
}

/// Takes the answer to one request back to whoever asked.
#[async_trait]
pub trait Responder: Send + Sync {
    /// Sends the answer. The first one wins; later ones, and those past the deadline, are no error and change nothing.
    async fn respond(&self, payload: Bytes) -> Result<(), BusError>;
}

/// A message as its subscriber gets it.
#[derive(Clone)]
pub struct Message {
    /// Where it was published, relative to the cluster.
    pub subject: String,
    /// What its sender put beside the payload.
    pub headers: Headers,
    /// What it says.
    pub payload: Bytes,
    /// Where an answer goes, if one is asked for.
    pub reply: Option<Arc<dyn Responder>>,
}

impl Message {
    /// Answers a request.
    ///
    /// # Errors
    /// The message asks for no answer, the answer is too large, or the bus cannot be reached.
    pub async fn respond(&self, payload: Bytes) -> Result<(), BusError> {
        match &self.reply {
            Some(reply) => reply.respond(payload).await,
            None => Err(BusError::NoReplyExpected { subject: self.subject.clone() }),
        }
    }
}

/// Without the payload: it may carry what no log may.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("subject", &self.subject)
            .field("headers", &self.headers)
            .field("payload_bytes", &self.payload.len())
            .field("asks_for_answer", &self.reply.is_some())
            .finish()
    }
}

/// Publish, subscribe and request. The rules an implementation keeps, numbered on from [`Discovery`](crate::Discovery)
/// and as in the functions of [`conformance`](crate::conformance):
///
/// 3. Messages may be lost, delayed, repeated and reordered; never changed. On a healthy connection they rarely are.
/// 4. Subjects are relative; clusters never hear each other.
/// 11. A subscription is in force when `subscribe` returns: what anyone publishes from then on reaches it. It hears
///     itself, and it resumes by itself after the connection was lost.
/// 12. Every matching subscription gets every message once per publication (but for rule 3).
/// 13. What waits in a subscription is bounded ([`SUBSCRIPTION_LIMITS`](crate::SUBSCRIPTION_LIMITS)). Beyond that the
///     oldest message is dropped and counted in [`Subscription::lagged`]; publishers never wait for a subscriber.
/// 14. A request ends with the first answer, with `NoResponders` at once if no subscription matches, or with `Deadline`.
/// 15. What cannot be sent is refused before anything is sent, with an error that names the limit; other traffic on the
///     connection does not notice.
/// 16. While the bus cannot be reached, calls fail with `Unavailable` in bounded time and subscriptions are silent. A
///     request that is under way when the connection is lost ends at its deadline at the latest.
/// 18. [`Headers`] travel with their message. The values of one name keep their order; names may come in another one. They
///     do not count in [`max_payload`](Self::max_payload). Headers of other senders beyond our limits are left out.
#[async_trait]
pub trait EventBus: Send + Sync + 'static {
    /// Sends a message to all who listen now.
    async fn publish_with(&self, subject: &str, headers: Headers, payload: Bytes) -> Result<(), BusError>;

    /// Sends a message without headers.
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        self.publish_with(subject, Headers::new(), payload).await
    }

    /// Listens to a subject, or to all below one: `kv.7.0`, `kv.>`.
    async fn subscribe(&self, pattern: &str) -> Result<Subscription, BusError>;

    /// Asks, and waits for the first answer up to `deadline`.
    async fn request_with(
        &self,
        subject: &str,
        headers: Headers,
        payload: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, BusError>;

    /// Asks without headers.
    async fn request(&self, subject: &str, payload: Bytes, deadline: Duration) -> Result<Bytes, BusError> {
        self.request_with(subject, Headers::new(), payload, deadline).await
    }

    /// The largest payload in bytes, for messages and answers alike, whatever headers go with it. Larger contents are
    /// chunked by their sender, who asks anew for every message: the limit is the server's and may change with it.
    fn max_payload(&self) -> usize;

    /// How the connection is doing.
    fn health(&self) -> PortHealth;
}
