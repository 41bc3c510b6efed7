//! Answers on their way to the requests that wait for them, and messages that a connection sends to itself.
//!
//! The client library keeps an entry for every request until its answer comes, so requests that nobody answers add up for
//! ever. Here an entry goes with the caller that waits for it. Fed by one subscription; used by `connection` and `bus`.

use async_nats::{Message, StatusCode};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};
use tokio::sync::oneshot;

/// How a request ends, but for its deadline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Answer(Bytes),
    NoResponders,
    /// The connection went that the request was sent on.
    Lost,
}

/// All requests under way on one bus connection.
pub(crate) struct Inbox {
    prefix: String,
    next_id: AtomicU64,
    waiting: Mutex<HashMap<u64, Entry>>,
}

struct Entry {
    /// The connection that it was asked on, counted from 1.
    connection: u64,
    asker: oneshot::Sender<Reply>,
}

/// One request's place. Dropping it forgets the request.
pub(crate) struct Waiting<'inbox> {
    inbox: &'inbox Inbox,
    id: u64,
    reply: oneshot::Receiver<Reply>,
}

impl Inbox {
    /// An inbox whose subjects begin with `prefix`, which no other inbox may have.
    pub(crate) fn new(prefix: String) -> Self {
        Self { prefix, next_id: AtomicU64::new(0), waiting: Mutex::default() }
    }

    /// What to subscribe to.
    pub(crate) fn pattern(&self) -> String {
        format!("{}.*", self.prefix)
    }

    /// A place for an answer to what is asked on this connection.
    pub(crate) fn expect(&self, connection: u64) -> Waiting<'_> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (asker, reply) = oneshot::channel();
        self.waiting.lock().insert(id, Entry { connection, asker });
        Waiting { inbox: self, id, reply }
    }

    /// Hands an answer to its request, if that still waits.
    pub(crate) fn deliver(&self, message: Message) {
        let id = message.subject.rsplit('.').next().and_then(|token| token.parse().ok());
        let Some(entry) = id.and_then(|id: u64| self.waiting.lock().remove(&id)) else { return };
        let nobody = message.status == Some(StatusCode::NO_RESPONDERS);
        let reply = if nobody { Reply::NoResponders } else { Reply::Answer(message.payload) };
        // An asker that gave up is no error.
        let _ = entry.asker.send(reply);
    }

    /// Ends what was asked on this connection and on those before it.
    pub(crate) fn lose(&self, connection: u64) {
        let mut waiting = self.waiting.lock();
        for (_, entry) in waiting.extract_if(|_, entry| entry.connection <= connection) {
            let _ = entry.asker.send(Reply::Lost);
        }
    }
}

impl Waiting<'_> {
    /// Where the answer is to go.
    pub(crate) fn subject(&self) -> String {
        format!("{}.{}", self.inbox.prefix, self.id)
    }

    /// Waits for the end.
    pub(crate) async fn reply(mut self) -> Reply {
        (&mut self.reply).await.unwrap_or(Reply::Lost)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.inbox.waiting.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(subject: String, status: Option<StatusCode>) -> Message {
        let payload = Bytes::from_static(b"answer");
        let subject = subject.into();
        Message { subject, reply: None, payload, headers: None, status, description: None, length: 0 }
    }

    #[tokio::test]
    async fn each_answer_finds_its_request_and_nothing_is_left() {
        let inbox = Inbox::new("_INBOX.a".to_owned());
        let (one, two, gone) = (inbox.expect(1), inbox.expect(1), inbox.expect(1));
        let late = gone.subject();
        drop(gone);
        inbox.deliver(message(late, None));
        inbox.deliver(message(two.subject(), Some(StatusCode::NO_RESPONDERS)));
        inbox.deliver(message(one.subject(), None));
        inbox.deliver(message("_INBOX.a.x".to_owned(), None));
        assert_eq!(two.reply().await, Reply::NoResponders);
        assert_eq!(one.reply().await, Reply::Answer(Bytes::from_static(b"answer")));
        assert!(inbox.waiting.lock().is_empty());
    }

    #[tokio::test]
    async fn a_lost_connection_ends_its_requests_and_not_those_of_the_next() {
        let inbox = Inbox::new("_INBOX.a".to_owned());
        let (old, new) = (inbox.expect(1), inbox.expect(2));
        inbox.lose(1);
        assert_eq!(old.reply().await, Reply::Lost);
        inbox.deliver(message(new.subject(), None));
        assert!(matches!(new.reply().await, Reply::Answer(_)));
    }
}
