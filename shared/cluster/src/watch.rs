//! What a watch delivers, and how an implementation feeds it.
//!
//! The queue between them is bounded. When its reader is too slow, what waits is replaced by one `Resync`: rule 1 allows
//! that, and it loses nothing that matters. Must not merge or reorder changes otherwise.

use crate::{
    Snapshot, WatchEvent,
    queue::{QueueLimits, QueueReader, QueueSender, queue},
};

/// What a watch may have waiting before it starts over with a `Resync`.
pub const WATCH_LIMITS: QueueLimits = QueueLimits { items: 1_024, bytes: 16 * 1024 * 1024 };

/// The changes under a prefix (rule 1). Dropping it ends the watch.
pub struct Watch {
    events: QueueReader<WatchEvent>,
}

/// The implementation's end of a [`Watch`]. Dropping it ends the watch for its reader.
pub struct WatchSender {
    events: QueueSender<WatchEvent>,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It waits to be read.
    Queued,
    /// There is no room: call [`WatchSender::resync`] with a snapshot that contains the change.
    Full,
    /// The watch is gone.
    Gone,
}

impl Watch {
    /// For implementations: a watch and the end that feeds it.
    #[must_use]
    pub fn channel(limits: QueueLimits) -> (WatchSender, Self) {
        let (sender, reader) = queue(limits);
        (WatchSender { events: sender }, Self { events: reader })
    }

    /// The next event; waits for one. `None` only when the connection itself is gone for good. Losing no event when the
    /// future is dropped, it may stand in a `select!`.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        self.events.next().await
    }

    /// The next event if one is there now.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        self.events.try_next()
    }
}

impl WatchSender {
    /// Delivers a change if there is room.
    #[must_use]
    pub fn send(&self, event: WatchEvent) -> Sent {
        let bytes = weight(&event);
        let queued = self.events.update(|backlog| {
            let fits = backlog.fits(bytes);
            if fits {
                backlog.push(event, bytes);
            }
            fits
        });
        match queued {
            Some(true) => Sent::Queued,
            Some(false) => Sent::Full,
            None => Sent::Gone,
        }
    }

    /// Delivers a snapshot in place of everything that waits. `false` if the watch is gone.
    pub fn resync(&self, snapshot: Snapshot) -> bool {
        let event = WatchEvent::Resync(snapshot);
        let bytes = weight(&event);
        let delivered = self.events.update(|backlog| {
            backlog.clear();
            backlog.push(event, bytes);
        });
        delivered.is_some()
    }

    /// Waits until the watch is dropped.
    pub async fn closed(&self) {
        self.events.closed().await;
    }

    /// Whether the watch was dropped.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.events.reader_gone()
    }
}

fn weight(event: &WatchEvent) -> usize {
    match event {
        WatchEvent::Resync(snapshot) => {
            snapshot.entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum()
        }
        WatchEvent::Put(entry) => entry.key.len() + entry.value.len(),
        WatchEvent::Delete { key, .. } => key.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Revision;

    #[tokio::test]
    async fn a_full_watch_starts_over_and_goes_on() {
        let (sender, mut watch) = Watch::channel(QueueLimits { items: 2, bytes: 1_000 });
        let change = |revision| WatchEvent::Delete { key: "k".into(), revision: Revision(revision) };
        assert_eq!(
            [1, 2, 3].map(|revision| sender.send(change(revision))),
            [Sent::Queued, Sent::Queued, Sent::Full]
        );
        assert!(sender.resync(Snapshot { entries: Vec::new(), revision: Revision(3) }));
        assert_eq!(sender.send(change(4)), Sent::Queued);
        assert!(
            matches!(watch.next().await, Some(WatchEvent::Resync(snapshot)) if snapshot.revision == Revision(3))
        );
        assert_eq!(watch.next().await, Some(change(4)));
        drop(watch);
        assert!(sender.is_gone());
        assert_eq!(sender.send(change(5)), Sent::Gone);
    }
}
