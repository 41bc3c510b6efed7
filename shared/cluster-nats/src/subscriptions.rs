//! From the client library's subscriptions to the port's: one task each moves messages, and never waits for a reader.
//!
//! The library drops a message when its own queue is full and says only the subscription's number. It numbers them in the
//! order in which they are made, so they are made one after another here, and counted along.

use crate::{connection::Wire, headers::from_nats};
use async_nats::{Client, SubscribeError, Subscriber};
use futures::StreamExt;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};
use switchtower_cluster::{Message, SubscriptionSender};

/// How many messages may wait in the library's queue of one subscription: more than come in while its task is woken.
pub(crate) const LIBRARY_QUEUE: usize = 16_384;

/// The subscriptions of one client, by the library's numbers.
pub(crate) struct Subscriptions {
    /// The number of the next one. Held while one is made.
    next: tokio::sync::Mutex<u64>,
    inboxes: Mutex<HashMap<u64, Weak<SubscriptionSender>>>,
}

impl Subscriptions {
    /// For a client that has made no subscription yet.
    pub(crate) fn new() -> Self {
        Self { next: tokio::sync::Mutex::new(1), inboxes: Mutex::default() }
    }

    /// Asks the server for a subscription. Messages lost on the way will be counted in `inbox`, if one is given.
    pub(crate) async fn open(
        &self,
        client: &Client,
        pattern: String,
        inbox: Option<&Arc<SubscriptionSender>>,
    ) -> Result<(u64, Subscriber), SubscribeError> {
        let mut next = self.next.lock().await;
        // Nothing awaits between here and the library's counting, so that both count the same.
        let number = *next;
        *next += 1;
        if let Some(inbox) = inbox {
            let mut inboxes = self.inboxes.lock();
            inboxes.retain(|_, inbox| inbox.strong_count() > 0);
            inboxes.insert(number, Arc::downgrade(inbox));
        }
        Ok((number, client.subscribe(pattern).await?))
    }

    /// The library lost a message of this subscription.
    pub(crate) fn count_lost(&self, number: u64) {
        if let Some(inbox) = self.inboxes.lock().get(&number).and_then(Weak::upgrade) {
            inbox.count_lost(1);
        }
    }

    fn forget(&self, number: u64) {
        self.inboxes.lock().remove(&number);
    }
}

/// Moves messages until the reader is gone or the connection ended. Dropping the subscriber unsubscribes.
pub(crate) async fn forward(
    wire: Arc<Wire>,
    number: u64,
    mut subscriber: Subscriber,
    inbox: Arc<SubscriptionSender>,
) {
    loop {
        let message = tokio::select! {
            message = subscriber.next() => message,
            () = inbox.closed() => None,
            () = wire.ended() => None,
        };
        let Some(message) = message.and_then(|message| from_library(&wire, message)) else { break };
        if !inbox.send(message) {
            break;
        }
    }
    wire.subscriptions.forget(number);
}

/// The message as the port has it. `None` cannot be: only our cluster's subjects are subscribed to.
fn from_library(wire: &Arc<Wire>, message: async_nats::Message) -> Option<Message> {
    let subject = wire.relative(message.subject.as_str())?.to_owned();
    let headers = from_nats(message.headers.as_ref());
    let reply = message.reply.map(|reply| wire.responder(&subject, reply));
    Some(Message { subject, headers, payload: message.payload, reply })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use switchtower_cluster::{SUBSCRIPTION_LIMITS, Subscription};

    /// A client without a server: what it is asked for waits, and that is enough to be counted.
    async fn client(queue: usize) -> Client {
        let options = async_nats::ConnectOptions::new().retry_on_initial_connect().client_capacity(queue);
        options.connect("nats://127.0.0.1:1").await.unwrap()
    }

    #[tokio::test]
    async fn our_numbers_are_those_of_the_library() {
        let (client, subscriptions) = (client(100).await, Subscriptions::new());
        let opened = (0..50).map(|number| subscriptions.open(&client, format!("s.{number}"), None));
        for (place, opened) in join_all(opened).await.into_iter().enumerate() {
            let (number, subscriber) = opened.unwrap();
            assert_eq!(number, place as u64 + 1);
            assert!(format!("{subscriber:?}").contains(&format!("sid: {number},")), "{subscriber:?}");
        }
    }

    #[tokio::test]
    async fn a_loss_is_counted_where_it_happened() {
        let (client, subscriptions) = (client(10).await, Subscriptions::new());
        let mut ends = Vec::new();
        for pattern in ["a", "b"] {
            let (inbox, subscription) = Subscription::channel(SUBSCRIPTION_LIMITS);
            let inbox = Arc::new(inbox);
            let (number, subscriber) =
                subscriptions.open(&client, pattern.to_owned(), Some(&inbox)).await.unwrap();
            ends.push((number, inbox, subscription, subscriber));
        }
        let (first, second) = (ends[0].0, ends[1].0);
        subscriptions.count_lost(second);
        subscriptions.count_lost(second);
        subscriptions.count_lost(999);
        assert_eq!((ends[0].2.lagged(), ends[1].2.lagged()), (0, 2));
        subscriptions.forget(first);
        subscriptions.count_lost(first);
        assert_eq!(ends[0].2.lagged(), 0);
    }
}
