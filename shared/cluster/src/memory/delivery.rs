//! What happens between a publication and its receivers: who hears it, what gets in the way, what is still on its way.
//!
//! Must not use a clock: whatever waits, waits for later publications. Receivers are taken in the order in which they
//! connected, so that a seed gives the same faults again. Driven by `bus`, under its lock.

use super::{
    bus::Question,
    faults::{BusFaults, Fate, FateDraw},
};
use crate::{BusError, ClusterName, Headers, Message, SubscriptionSender, subject_matches};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Everything the bus knows.
#[derive(Default)]
pub(super) struct State {
    next_id: u64,
    connections: BTreeMap<u64, ConnectionState>,
    faults: Option<FateDraw>,
    /// How many messages were published so far: the time of `Held::due`.
    published: u64,
    /// Messages on their way, in the order in which they were held back.
    held: Vec<Held>,
    /// Ways that are blocked: from, to.
    blocked: BTreeSet<(u64, u64)>,
}

/// One connection as the bus sees it.
pub(super) struct ConnectionState {
    cluster: ClusterName,
    reachable: bool,
    subscriptions: Vec<(String, SubscriptionSender)>,
    /// Until this publication everything for this connection waits in line.
    line_until: u64,
}

/// One message on its way.
#[derive(Clone)]
pub(super) struct Publication {
    /// The sender's connection.
    pub(super) from: u64,
    pub(super) cluster: ClusterName,
    pub(super) subject: String,
    pub(super) headers: Headers,
    pub(super) payload: Bytes,
    pub(super) question: Option<Question>,
}

/// A message that reaches its receiver later.
struct Held {
    due: u64,
    to: u64,
    publication: Publication,
}

impl State {
    pub(super) fn connect(&mut self, cluster: ClusterName) -> u64 {
        self.next_id += 1;
        let connection =
            ConnectionState { cluster, reachable: true, subscriptions: Vec::new(), line_until: 0 };
        self.connections.insert(self.next_id, connection);
        self.next_id
    }

    /// Forgets a connection. What it returns must be dropped outside the lock.
    pub(super) fn disconnect(&mut self, id: u64) -> Option<ConnectionState> {
        self.blocked.retain(|&(from, to)| from != id && to != id);
        self.connections.remove(&id)
    }

    pub(super) fn set_reachable(&mut self, id: u64, reachable: bool) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.reachable = reachable;
        }
    }

    pub(super) fn check_reachable(&self, id: u64, operation: &'static str) -> Result<(), BusError> {
        if self.is_reachable(id) {
            return Ok(());
        }
        Err(BusError::Unavailable { operation, reason: "the connection is cut".to_owned() })
    }

    pub(super) fn set_faults(&mut self, faults: BusFaults, seed: u64) {
        self.faults = Some(FateDraw::new(faults, seed));
        self.deliver_held();
    }

    pub(super) fn set_blocked(&mut self, from: u64, to: u64, blocked: bool) {
        if blocked {
            self.blocked.insert((from, to));
        } else {
            self.blocked.remove(&(from, to));
        }
    }

    pub(super) fn subscribe(&mut self, id: u64, pattern: &str, inbox: SubscriptionSender) {
        if let Some(connection) = self.connections.get_mut(&id) {
            // Dropped subscriptions are cleared away here too: their subjects may never be published again.
            connection.subscriptions.retain(|(_, inbox)| !inbox.is_gone());
            connection.subscriptions.push((pattern.to_owned(), inbox));
        }
    }

    pub(super) fn publish(&mut self, publication: &Publication) {
        self.published += 1;
        for to in self.receivers_of(publication) {
            self.send(to, publication);
        }
        let now = self.published;
        let (due, waiting) =
            std::mem::take(&mut self.held).into_iter().partition(|held: &Held| held.due <= now);
        self.held = waiting;
        self.arrive(due);
    }

    /// Questions are lost or repeated like messages, but never held back: the asker is waiting. `false` if nobody hears.
    pub(super) fn ask(&mut self, question: &Publication) -> bool {
        if !self.is_heard(question) {
            return false;
        }
        for to in self.receivers_of(question) {
            let copies = match self.draw() {
                Fate::Lose => 0,
                Fate::Repeat => 2,
                Fate::Deliver | Fate::Delay(_) | Fate::Reorder(_) => 1,
            };
            (0..copies).for_each(|_| self.deliver(to, question));
        }
        true
    }

    /// Whether an answer gets through.
    pub(super) fn answer_arrives(&mut self, from: u64, to: u64) -> bool {
        self.is_reachable(to) && !self.blocked.contains(&(from, to)) && self.draw() != Fate::Lose
    }

    pub(super) fn deliver_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.connections.values_mut().for_each(|connection| connection.line_until = 0);
        self.arrive(held);
    }

    fn is_reachable(&self, id: u64) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.reachable)
    }

    fn draw(&mut self) -> Fate {
        self.faults.as_mut().map_or(Fate::Deliver, FateDraw::draw)
    }

    /// Connections that shall hear it now or later. What is blocked is lost here.
    fn receivers_of(&self, publication: &Publication) -> Vec<u64> {
        let hearing = self.connections.iter().filter(|(_, connection)| connection.hears(publication));
        let reached =
            hearing.map(|(&to, _)| to).filter(|&to| !self.blocked.contains(&(publication.from, to)));
        reached.collect()
    }

    fn send(&mut self, to: u64, publication: &Publication) {
        let now = self.published;
        match self.draw() {
            Fate::Lose => {}
            Fate::Deliver => self.join_line(to, 0, publication),
            Fate::Repeat => {
                self.join_line(to, 0, publication);
                self.join_line(to, 0, publication);
            }
            Fate::Delay(wait) => self.join_line(to, now + wait, publication),
            Fate::Reorder(wait) => {
                self.held.push(Held { due: now + wait, to, publication: publication.clone() });
            }
        }
    }

    /// Delivers in order: at once, or behind what waits in line.
    fn join_line(&mut self, to: u64, until: u64, publication: &Publication) {
        let Some(connection) = self.connections.get_mut(&to) else { return };
        connection.line_until = connection.line_until.max(until);
        let due = connection.line_until;
        if due >= self.published {
            self.held.push(Held { due, to, publication: publication.clone() });
        } else {
            self.deliver(to, publication);
        }
    }

    fn arrive(&mut self, held: Vec<Held>) {
        for Held { to, publication, .. } in held {
            self.deliver(to, &publication);
        }
    }

    fn deliver(&mut self, to: u64, publication: &Publication) {
        let Some(connection) = self.connections.get_mut(&to).filter(|known| known.hears(publication)) else {
            return;
        };
        connection.subscriptions.retain(|(pattern, inbox)| {
            !subject_matches(pattern, &publication.subject) || inbox.send(publication.message_for(to))
        });
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
        Message {
            subject: self.subject.clone(),
            headers: self.headers.clone(),
            payload: self.payload.clone(),
            reply: self.question.as_ref().map(|question| question.responder(&self.subject, connection)),
        }
    }
}
