//! A consumer of watches as rule 1 wants it, for the rules' tests: replaces on `Resync`, applies changes, and checks that
//! they come in order. With it, short forms of the calls that the tests make most.

use super::within;
use crate::{Discovery, Entry, Lease, Revision, Snapshot, Watch, WatchEvent};
use bytes::Bytes;
use std::{collections::BTreeMap, time::Duration};

/// The leases' time to live; only a real store waits for it.
pub(super) const TTL: Duration = Duration::from_secs(5);

/// A consumer as rule 1 wants it, which also checks that events come in order.
pub(super) struct Follower {
    watch: Watch,
    pub(super) entries: BTreeMap<String, Entry>,
    pub(super) revision: Revision,
    pub(super) resyncs: usize,
}

impl Follower {
    pub(super) async fn start(discovery: &dyn Discovery, prefix: &str) -> Self {
        let watch = discovery.watch(prefix).await.unwrap();
        let mut follower = Self { watch, entries: BTreeMap::new(), revision: Revision(0), resyncs: 0 };
        follower.step().await;
        assert_eq!(follower.resyncs, 1, "a watch begins with a resync");
        follower
    }

    async fn step(&mut self) {
        let event = within("an event of the watch", self.watch.next()).await.expect("the watch ended");
        match event {
            WatchEvent::Resync(snapshot) => {
                assert!(snapshot.revision >= self.revision, "a resync went back in time");
                self.revision = snapshot.revision;
                self.entries = by_key(snapshot);
                self.resyncs += 1;
            }
            WatchEvent::Put(entry) => {
                self.advance(entry.revision);
                self.entries.insert(entry.key.clone(), entry);
            }
            WatchEvent::Delete { key, revision } => {
                // Keys of one lease may go in one change of the store, so here equal revisions are in order.
                assert!(revision >= self.revision, "a deletion came late");
                self.revision = revision;
                assert!(self.entries.remove(&key).is_some(), "`{key}` was deleted but not there");
            }
        }
    }

    fn advance(&mut self, revision: Revision) {
        assert!(revision > self.revision, "revision {revision} came after {}", self.revision);
        self.revision = revision;
    }

    pub(super) fn has(&self, key: &str, value: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.value == value)
    }

    pub(super) async fn until(&mut self, condition: impl Fn(&Self) -> bool) {
        while !condition(self) {
            self.step().await;
        }
    }

    /// The contents by keys and values.
    pub(super) fn contents(&self) -> Vec<(&str, &[u8])> {
        self.entries.values().map(|entry| (entry.key.as_str(), entry.value.as_ref())).collect()
    }
}

pub(super) fn by_key(snapshot: Snapshot) -> BTreeMap<String, Entry> {
    snapshot.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect()
}

pub(super) async fn put(discovery: &dyn Discovery, key: &str, value: &str) -> Revision {
    discovery.put(key, Bytes::copy_from_slice(value.as_bytes()), None).await.unwrap()
}

pub(super) async fn put_leased(discovery: &dyn Discovery, key: &str, value: &str, lease: &Lease) -> Revision {
    discovery.put(key, Bytes::copy_from_slice(value.as_bytes()), Some(lease)).await.unwrap()
}

pub(super) async fn keys(discovery: &dyn Discovery, prefix: &str) -> Vec<String> {
    let snapshot = discovery.list(prefix).await.unwrap();
    snapshot.entries.into_iter().map(|entry| entry.key).collect()
}
