//! A subscription's bounded inbox, and how an implementation fills it.
//!
//! A slow reader loses the oldest messages and is told how many (rule 13): newer state is worth more, and whoever needs
//! every message repairs the gap anyway. Must never make a publisher wait.

use crate::{
    Message,
    queue::{QueueLimits, QueueReader, QueueSender, queue},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// What may wait in one subscription.
pub const SUBSCRIPTION_LIMITS: QueueLimits = QueueLimits { items: 4_096, bytes: 64 * 1024 * 1024 };

/// Messages of one pattern. Dropping it unsubscribes.
pub struct Subscription {
    messages: QueueReader<Message>,
    lagged: Arc<AtomicU64>,
}

/// The implementation's end of a [`Subscription`]. Dropping it ends the subscription for its reader.
pub struct SubscriptionSender {
    messages: QueueSender<Message>,
    lagged: Arc<AtomicU64>,
}

impl Subscription {
    /// For implementations: a subscription and the end that fills it.
    #[must_use]
    pub fn channel(limits: QueueLimits) -> (SubscriptionSender, Self) {
        let (sender, reader) = queue(limits);
        let lagged = Arc::new(AtomicU64::new(0));
        (
            SubscriptionSender { messages: sender, lagged: Arc::clone(&lagged) },
            Self { messages: reader, lagged },
        )
    }

    /// The next message; waits for one. `None` only when the connection itself is gone for good. Losing no message when
    /// the future is dropped, it may stand in a `select!`.
    pub async fn next(&mut self) -> Option<Message> {
        self.messages.next().await
    }

    /// The next message if one is there now.
    pub fn try_next(&mut self) -> Option<Message> {
        self.messages.try_next()
    }

    /// How many messages were dropped so far because this reader was slow.
    #[must_use]
    pub fn lagged(&self) -> u64 {
        self.lagged.load(Ordering::Relaxed)
    }
}

impl SubscriptionSender {
    /// Delivers a message, dropping and counting the oldest ones if there is no room. `false` if the subscription is
    /// gone.
    pub fn send(&self, message: Message) -> bool {
        let bytes = message.subject.len() + message.headers.bytes() + message.payload.len();
        let dropped = self.messages.update(|backlog| {
            let mut dropped = Vec::new();
            while !backlog.fits(bytes) {
                dropped.extend(backlog.pop());
            }
            self.lagged.fetch_add(dropped.len() as u64, Ordering::Relaxed);
            backlog.push(message, bytes);
            dropped
        });
        // The dropped messages go here, outside the queue's lock.
        dropped.is_some()
    }

    /// Counts messages that were lost on the way here because this process was slow.
    pub fn count_lost(&self, messages: u64) {
        self.lagged.fetch_add(messages, Ordering::Relaxed);
    }

    /// Whether the subscription was dropped.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.messages.reader_gone()
    }

    /// Waits until the subscription is dropped.
    pub async fn closed(&self) {
        self.messages.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Headers;
    use bytes::Bytes;

    fn message(payload: &'static [u8]) -> Message {
        Message {
            subject: "s".into(),
            headers: Headers::new(),
            payload: Bytes::from_static(payload),
            reply: None,
        }
    }

    #[tokio::test]
    async fn a_slow_reader_keeps_the_newest_and_learns_how_many_it_lost() {
        let (sender, mut subscription) = Subscription::channel(QueueLimits { items: 2, bytes: 100 });
        for payload in [b"1", b"2", b"3", b"4", b"5"] {
            assert!(sender.send(message(payload)));
        }
        assert_eq!(subscription.lagged(), 3);
        sender.count_lost(2);
        assert_eq!(subscription.lagged(), 5);
        drop(sender);
        let mut left = Vec::new();
        while let Some(message) = subscription.next().await {
            left.push(message.payload);
        }
        assert_eq!(left, ["4", "5"]);
    }

    #[test]
    fn a_dropped_subscription_takes_nothing() {
        let (sender, subscription) = Subscription::channel(SUBSCRIPTION_LIMITS);
        drop(subscription);
        assert!(sender.is_gone() && !sender.send(message(b"1")));
    }
}
