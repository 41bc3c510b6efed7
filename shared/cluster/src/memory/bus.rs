//! [`EventBus`] in memory: a list of subscriptions that every publication goes through, and faults on request.
//!
//! Delivery happens inside `publish`, under one lock, so that without faults messages arrive in the order of their
//! publication. Must not use a clock but for the deadlines of requests.

use super::faults::{BusFaults, Fate, FateDraw};
use crate::{
    BusError, ClusterName, EventBus, Message, Responder, SUBSCRIPTION_LIMITS, Subscription,
    SubscriptionSender, check_pattern, check_subject, subject_matches,
};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};
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

#[derive(Default)]
struct State {
    next_id: u64,
    connections: HashMap<u64, ConnectionState>,
    faults: Option<FateDraw>,
    /// Messages whose fate was to come later.
    held: Vec<Publication>,
}

struct ConnectionState {
    cluster: ClusterName,
    reachable: bool,
    subscriptions: Vec<(String, SubscriptionSender)>,
}

struct Connection {
    id: u64,
    cluster: ClusterName,
    state: Arc<Mutex<State>>,
}

/// One message on its way.
#[derive(Clone)]
struct Publication {
    cluster: ClusterName,
    subject: String,
    payload: Bytes,
    question: Option<Question>,
}

/// What makes a message a question: where its first answer goes, and the bus that carries it there.
#[derive(Clone)]
struct Question {
    asker: Arc<Mutex<Option<oneshot::Sender<Bytes>>>>,
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
        let mut state = self.state.lock();
        state.next_id += 1;
        let id = state.next_id;
        let connection =
            ConnectionState { cluster: cluster.clone(), reachable: true, subscriptions: Vec::new() };
        state.connections.insert(id, connection);
        drop(state);
        let cluster = cluster.clone();
        MemoryEventBus { connection: Arc::new(Connection { id, cluster, state: Arc::clone(&self.state) }) }
    }

    /// From now on, messages meet these fates, drawn from `seed`; what an earlier setting held back is delivered.
    pub fn set_faults(&self, faults: BusFaults, seed: u64) {
        let mut state = self.state.lock();
        state.faults = Some(FateDraw::new(faults, seed));
        state.deliver_held();
    }

    /// Delivers what is still held back, as a test does at its quiet end.
    pub fn deliver_held(&self) {
        self.state.lock().deliver_held();
    }
}

impl MemoryEventBus {
    /// Cuts or restores the connection. While cut, calls fail with `Unavailable` and subscriptions miss what is
    /// published; afterwards they go on.
    pub fn set_reachable(&self, reachable: bool) {
        if let Some(connection) = self.connection.state.lock().connections.get_mut(&self.connection.id) {
            connection.reachable = reachable;
        }
    }

    fn publication(&self, subject: &str, payload: Bytes) -> Result<Publication, BusError> {
        check_subject(subject)?;
        check_size(subject, &payload)?;
        let (cluster, subject) = (self.connection.cluster.clone(), subject.to_owned());
        Ok(Publication { cluster, subject, payload, question: None })
    }
}

#[async_trait]
impl EventBus for MemoryEventBus {
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        let publication = self.publication(subject, payload)?;
        let mut state = self.connection.state.lock();
        state.check_reachable(self.connection.id, "publish a message")?;
        state.publish(publication);
        Ok(())
    }

    async fn subscribe(&self, pattern: &str) -> Result<Subscription, BusError> {
        check_pattern(pattern)?;
        let mut state = self.connection.state.lock();
        state.check_reachable(self.connection.id, "subscribe")?;
        let (sender, subscription) = Subscription::channel(SUBSCRIPTION_LIMITS);
        if let Some(connection) = state.connections.get_mut(&self.connection.id) {
            // Dropped subscriptions are cleared away here too: their subjects may never be published again.
            connection.subscriptions.retain(|(_, sender)| !sender.is_gone());
            connection.subscriptions.push((pattern.to_owned(), sender));
        }
        Ok(subscription)
    }

    async fn request(&self, subject: &str, payload: Bytes, deadline: Duration) -> Result<Bytes, BusError> {
        let mut publication = self.publication(subject, payload)?;
        let (asker, answered) = oneshot::channel();
        publication.question = Some(Question {
            asker: Arc::new(Mutex::new(Some(asker))),
            state: Arc::clone(&self.connection.state),
        });
        {
            let mut state = self.connection.state.lock();
            state.check_reachable(self.connection.id, "send a request")?;
            if !state.is_heard(&publication) {
                return Err(BusError::NoResponders { subject: subject.to_owned() });
            }
            state.ask(publication);
        }
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
        self.question.state.lock().check_reachable(self.connection, "answer a request")?;
        if let Some(asker) = self.question.asker.lock().take() {
            // An asker that gave up is no error.
            let _ = asker.send(payload);
        }
        Ok(())
    }
}

impl State {
    fn check_reachable(&self, connection: u64, operation: &'static str) -> Result<(), BusError> {
        if self.connections.get(&connection).is_some_and(|connection| connection.reachable) {
            return Ok(());
        }
        Err(BusError::Unavailable { operation, reason: "the connection is cut".to_owned() })
    }

    fn publish(&mut self, publication: Publication) {
        let earlier = std::mem::take(&mut self.held);
        match self.draw() {
            Fate::Lose => {}
            Fate::Delay => self.held.push(publication),
            Fate::Deliver => self.deliver(publication),
            Fate::Repeat => {
                self.deliver(publication.clone());
                self.deliver(publication);
            }
        }
        for publication in earlier {
            self.deliver(publication);
        }
    }

    /// Questions are lost or repeated like messages, but never held back: the asker is waiting.
    fn ask(&mut self, question: Publication) {
        match self.draw() {
            Fate::Lose => {}
            Fate::Repeat => {
                self.deliver(question.clone());
                self.deliver(question);
            }
            Fate::Deliver | Fate::Delay => self.deliver(question),
        }
    }

    fn draw(&mut self) -> Fate {
        self.faults.as_mut().map_or(Fate::Deliver, FateDraw::draw)
    }

    fn deliver_held(&mut self) {
        for publication in std::mem::take(&mut self.held) {
            self.deliver(publication);
        }
    }

    fn deliver(&mut self, publication: Publication) {
        for (&id, connection) in &mut self.connections {
            if !connection.hears(&publication) {
                continue;
            }
            connection.subscriptions.retain(|(pattern, inbox)| {
                if !subject_matches(pattern, &publication.subject) {
                    return true;
                }
                inbox.send(publication.message_for(id))
            });
        }
    }

    fn is_heard(&self, publication: &Publication) -> bool {
        self.connections.values().filter(|connection| connection.hears(publication)).any(|connection| {
            let mut subscriptions = connection.subscriptions.iter();
            subscriptions
                .any(|(pattern, inbox)| !inbox.is_gone() && subject_matches(pattern, &publication.subject))
        })
    }
}

impl ConnectionState {
    fn hears(&self, publication: &Publication) -> bool {
        self.reachable && self.cluster == publication.cluster
    }
}

impl Publication {
    fn message_for(&self, connection: u64) -> Message {
        let subject = self.subject.clone();
        let reply = self.question.clone().map(|question| {
            Arc::new(MemoryResponder { subject: subject.clone(), question, connection }) as Arc<dyn Responder>
        });
        Message { subject, payload: self.payload.clone(), reply }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let connection = state.connections.remove(&self.id);
        drop(state);
        drop(connection);
    }
}

fn check_size(subject: &str, payload: &Bytes) -> Result<(), BusError> {
    if payload.len() <= MAX_PAYLOAD_BYTES {
        return Ok(());
    }
    Err(BusError::TooLarge { subject: subject.to_owned(), bytes: payload.len(), limit: MAX_PAYLOAD_BYTES })
}
