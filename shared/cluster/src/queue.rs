//! The bounded queue under watches and subscriptions: many senders' hands, one reader.
//!
//! What happens when it is full is its owner's rule (a watch starts over, a subscription forgets the oldest), so a plain
//! channel will not do: the owner must be able to take back what has not been read. Used by `watch` and `subscription`.

use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc};
use tokio::sync::Notify;

/// How much may wait in one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Items.
    pub items: usize,
    /// Bytes of all waiting items' payloads together.
    pub bytes: usize,
}

/// What waits, with the rules of a bounded queue.
pub(crate) struct Backlog<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    limits: QueueLimits,
    sender_gone: bool,
    reader_gone: bool,
}

impl<T> Backlog<T> {
    /// Whether an item of `bytes` still fits. An empty queue takes any one item.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        self.items.is_empty()
            || (self.items.len() < self.limits.items && self.bytes.saturating_add(bytes) <= self.limits.bytes)
    }

    pub(crate) fn push(&mut self, item: T, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.items.push_back((item, bytes));
    }

    /// Takes the oldest item out.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let (item, bytes) = self.items.pop_front()?;
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(item)
    }

    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.bytes = 0;
    }
}

struct Shared<T> {
    backlog: Mutex<Backlog<T>>,
    changed: Notify,
    /// Tells a sender that waits in `closed` that the reader left.
    left: Notify,
}

/// The sending half. Dropping it ends the queue once it is read empty.
pub(crate) struct QueueSender<T> {
    shared: Arc<Shared<T>>,
}

/// The reading half. Dropping it makes every later send fail.
pub(crate) struct QueueReader<T> {
    shared: Arc<Shared<T>>,
}

pub(crate) fn queue<T>(limits: QueueLimits) -> (QueueSender<T>, QueueReader<T>) {
    let backlog =
        Backlog { items: VecDeque::new(), bytes: 0, limits, sender_gone: false, reader_gone: false };
    let shared =
        Arc::new(Shared { backlog: Mutex::new(backlog), changed: Notify::new(), left: Notify::new() });
    (QueueSender { shared: Arc::clone(&shared) }, QueueReader { shared })
}

impl<T> QueueSender<T> {
    /// Lets `change` put something into the queue and wakes the reader; `None` if there is no reader any more.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut Backlog<T>) -> R) -> Option<R> {
        let mut backlog = self.shared.backlog.lock();
        if backlog.reader_gone {
            return None;
        }
        let outcome = change(&mut backlog);
        drop(backlog);
        self.shared.changed.notify_one();
        Some(outcome)
    }

    pub(crate) fn reader_gone(&self) -> bool {
        self.shared.backlog.lock().reader_gone
    }

    /// Waits until the reader is gone.
    pub(crate) async fn closed(&self) {
        while !self.reader_gone() {
            // The one permit that `notify_one` leaves is enough: the reader leaves once.
            self.shared.left.notified().await;
        }
    }
}

impl<T> QueueReader<T> {
    /// The oldest item; waits for one. `None` when the sender is gone and all is read. Nothing is lost when the future
    /// is dropped.
    pub(crate) async fn next(&mut self) -> Option<T> {
        loop {
            // `notify_one` leaves a permit when nobody waits yet, so a push after this check is not missed.
            {
                let mut backlog = self.shared.backlog.lock();
                if let Some(item) = backlog.pop() {
                    return Some(item);
                }
                if backlog.sender_gone {
                    return None;
                }
            }
            self.shared.changed.notified().await;
        }
    }

    /// The oldest item if one is there now.
    pub(crate) fn try_next(&mut self) -> Option<T> {
        self.shared.backlog.lock().pop()
    }
}

impl<T> Drop for QueueSender<T> {
    fn drop(&mut self) {
        self.shared.backlog.lock().sender_gone = true;
        self.shared.changed.notify_one();
    }
}

impl<T> Drop for QueueReader<T> {
    fn drop(&mut self) {
        let mut backlog = self.shared.backlog.lock();
        backlog.reader_gone = true;
        // What waited may hold replies and the like whose drop takes other locks: let it go outside this one.
        let unread = std::mem::take(&mut backlog.items);
        backlog.bytes = 0;
        drop(backlog);
        drop(unread);
        self.shared.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(sender: &QueueSender<u8>, item: u8, bytes: usize) -> Option<bool> {
        sender.update(|backlog| {
            let fits = backlog.fits(bytes);
            if fits {
                backlog.push(item, bytes);
            }
            fits
        })
    }

    #[tokio::test]
    async fn items_and_bytes_are_both_limited_and_one_large_item_always_fits() {
        let (sender, mut reader) = queue(QueueLimits { items: 2, bytes: 10 });
        assert_eq!(push(&sender, 1, 50), Some(true));
        assert_eq!(push(&sender, 2, 1), Some(false));
        assert_eq!(reader.next().await, Some(1));
        assert_eq!(
            (push(&sender, 3, 5), push(&sender, 4, 5), push(&sender, 5, 0)),
            (Some(true), Some(true), Some(false))
        );
        assert_eq!((reader.try_next(), reader.try_next(), reader.try_next()), (Some(3), Some(4), None));
    }

    #[tokio::test]
    async fn the_reader_reads_to_the_end_and_the_sender_hears_that_it_left() {
        let (sender, mut reader) = queue(QueueLimits { items: 2, bytes: 10 });
        push(&sender, 1, 0);
        drop(sender);
        assert_eq!((reader.next().await, reader.next().await), (Some(1), None));
        let (sender, reader) = queue(QueueLimits { items: 2, bytes: 10 });
        let ((), ()) = tokio::join!(sender.closed(), async { drop(reader) });
        assert!(sender.reader_gone() && push(&sender, 1, 0).is_none());
        sender.closed().await;
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken() {
        let (sender, mut reader) = queue(QueueLimits { items: 2, bytes: 10 });
        let (got, ()) = tokio::join!(reader.next(), async {
            tokio::task::yield_now().await;
            push(&sender, 9, 0);
        });
        assert_eq!(got, Some(9));
    }
}
