//! [`EventBus`] in memory: a list of subscriptions that every publication goes through, and faults on request.
//!
//! Delivery happens inside `publish`, under one lock, so that without faults messages arrive in the order of their
//! publication. Must not use a clock but for the deadlines of requests.

use super::{
    delivery::{Publication, State},
    faults::BusFaults,
};
use crate::{
    BusError, ClusterName, EventBus, Headers, PortHealth, Responder, SUBSCRIPTION_LIMITS, Subscription,
    check_pattern, check_subject,
};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// The largest payload, in bytes: what a NATS server allows unless configured otherwise.
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;

/// The bus that connections share; stands for the server.
#[derive(Clone, Default)]
pub struct MemoryBus {
    state: Arc<Mutex<State>>,
}

/// One process's connection to a cluster's part of a [`MemoryBus`]. Clones are the same connection. When the last clone
/// is dropped, its subscriptions end.
#[derive(Clone)]
pub struct MemoryEventBus {
    connection: Arc<Connection>,
}

struct Connection {
    id: u64,
    cluster: ClusterName,
    state: Arc<Mutex<State>>,
}

/// What makes a message a question: where its first answer goes, and the bus that carries it there.
#[derive(Clone)]
pub(super) struct Question {
    asker: Arc<Mutex<Option<oneshot::Sender<Bytes>>>>,
    asker_connection: u64,
    state: Arc<Mutex<State>>,
}

impl MemoryBus {
    /// A bus without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new connection to the messages of one cluster.
    #[must_use]
    pub fn connect(&self, cluster: &ClusterName) -> MemoryEventBus {
        let id = self.state.lock().connect(cluster.clone());
        let (cluster, state) = (cluster.clone(), Arc::clone(&self.state));
        MemoryEventBus { connection: Arc::new(Connection { id, cluster, state }) }
    }

    /// From now on, messages meet these fates on their way to each receiver, drawn from `seed`; what an earlier setting
    /// held back is delivered.
    pub fn set_faults(&self, faults: BusFaults, seed: u64) {
        self.state.lock().set_faults(faults, seed);
    }

    /// Delivers what is still held back, as a test does at its quiet end.
    pub fn deliver_held(&self) {
        self.state.lock().deliver_held();
    }

    /// Blocks or opens the way from one connection to another, and leaves the way back as it is: messages, questions and
    /// answers on a blocked way are lost, and nobody is told.
    pub fn set_blocked(&self, from: &MemoryEventBus, to: &MemoryEventBus, blocked: bool) {
        self.state.lock().set_blocked(from.connection.id, to.connection.id, blocked);
    }
}

impl MemoryEventBus {
    /// Cuts or restores the connection. While cut, calls fail with `Unavailable` and subscriptions miss what is
    /// published; afterwards they go on.
    pub fn set_reachable(&self, reachable: bool) {
        self.connection.state.lock().set_reachable(self.connection.id, reachable);
    }

    fn publication(&self, subject: &str, headers: Headers, payload: Bytes) -> Result<Publication, BusError> {
        check_subject(subject)?;
        check_size(subject, &payload)?;
        let (from, cluster) = (self.connection.id, self.connection.cluster.clone());
        Ok(Publication { from, cluster, subject: subject.to_owned(), headers, payload, question: None })
    }
}

#[async_trait]
impl EventBus for MemoryEventBus {
    async fn publish_with(&self, subject: &str, headers: Headers, payload: Bytes) -> Result<(), BusError> {
        let publication = self.publication(subject, headers, payload)?;
        let mut state = self.connection.state.lock();
        state.check_reachable(self.connection.id, "publish a message")?;
        state.publish(&publication);
        Ok(())
    }

    async fn subscribe(&self, pattern: &str) -> Result<Subscription, BusError> {
        check_pattern(pattern)?;
        let mut state = self.connection.state.lock();
        state.check_reachable(self.connection.id, "subscribe")?;
        let (sender, subscription) = Subscription::channel(SUBSCRIPTION_LIMITS);
        state.subscribe(self.connection.id, pattern, sender);
        Ok(subscription)
    }

    async fn request_with(
        &self,
        subject: &str,
        headers: Headers,
        payload: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, BusError> {
        let mut publication = self.publication(subject, headers, payload)?;
        let (asker, answered) = oneshot::channel();
        publication.question = Some(Question {
            asker: Arc::new(Mutex::new(Some(asker))),
            asker_connection: self.connection.id,
            state: Arc::clone(&self.connection.state),
        });
        {
            let mut state = self.connection.state.lock();
            state.check_reachable(self.connection.id, "send a request")?;
            if !state.ask(&publication) {
                return Err(BusError::NoResponders { subject: subject.to_owned() });
            }
        }
        drop(publication);
        // If every copy of the question is dropped unanswered, the asker still learns of it only by the deadline, as on
        // a real bus.
        let waiting = async {
            match answered.await {
                Ok(payload) => payload,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::time::timeout(deadline, waiting).await.map_err(|_| BusError::Deadline {
            subject: subject.to_owned(),
            deadline_ms: deadline.as_millis(),
        })
    }

    fn max_payload(&self) -> usize {
        MAX_PAYLOAD_BYTES
    }

    fn health(&self) -> PortHealth {
        let state = self.connection.state.lock();
        PortHealth::in_memory(state.check_reachable(self.connection.id, "").is_ok())
    }
}

impl Question {
    /// What a receiver on `connection` answers with.
    pub(super) fn responder(&self, subject: &str, connection: u64) -> Arc<dyn Responder> {
        Arc::new(MemoryResponder { subject: subject.to_owned(), question: self.clone(), connection })
    }
}

/// Answers for one responder's connection.
struct MemoryResponder {
    subject: String,
    question: Question,
    connection: u64,
}

#[async_trait]
impl Responder for MemoryResponder {
    async fn respond(&self, payload: Bytes) -> Result<(), BusError> {
        check_size(&self.subject, &payload)?;
        {
            let mut state = self.question.state.lock();
            state.check_reachable(self.connection, "answer a request")?;
            if !state.answer_arrives(self.connection, self.question.asker_connection) {
                return Ok(());
            }
        }
        if let Some(asker) = self.question.asker.lock().take() {
            // An asker that gave up is no error.
            let _ = asker.send(payload);
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // In two steps: the subscriptions go outside the lock.
        let connection = self.state.lock().disconnect(self.id);
        drop(connection);
    }
}

fn check_size(subject: &str, payload: &Bytes) -> Result<(), BusError> {
    if payload.len() <= MAX_PAYLOAD_BYTES {
        return Ok(());
    }
    Err(BusError::TooLarge { subject: subject.to_owned(), bytes: payload.len(), limit: MAX_PAYLOAD_BYTES })
}
