//! What a consumer of a watch knows: replaced on `Resync`, changed by what follows.

use std::{collections::BTreeMap, time::Duration};
use switchtower_cluster::{Discovery, Entry, Watch, WatchEvent};
use switchtower_etcd::EtcdDiscovery;
use switchtower_tests::servers::PATIENCE;
use tokio::time::timeout;

/// A consumer of a watch on all keys.
pub(crate) struct Follower {
    watch: Watch,
    pub(crate) entries: BTreeMap<String, Entry>,
    pub(crate) resyncs: usize,
}

impl Follower {
    /// A follower that has seen nothing yet.
    pub(crate) async fn new(discovery: &EtcdDiscovery) -> Self {
        let watch = discovery.watch("").await.unwrap();
        Self { watch, entries: BTreeMap::new(), resyncs: 0 }
    }

    /// A follower that has seen the state.
    pub(crate) async fn start(discovery: &EtcdDiscovery) -> Self {
        let mut follower = Self::new(discovery).await;
        follower.until("the first resync", |seen| seen.resyncs == 1).await;
        follower
    }

    /// Reads on until `condition` holds.
    pub(crate) async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let reading = async {
            while !condition(self) {
                let event = self.watch.next().await;
                self.apply(event.expect("the watch ended"));
            }
        };
        let read = timeout(PATIENCE, reading).await;
        assert!(read.is_ok(), "waited in vain: {what}; seen: {:?}", self.entries.keys());
    }

    /// Reads whatever comes for a while.
    pub(crate) async fn listen(&mut self, time: Duration) {
        let reading = async {
            loop {
                let event = self.watch.next().await;
                self.apply(event.expect("the watch ended"));
            }
        };
        let read: Result<(), _> = timeout(time, reading).await;
        assert!(read.is_err());
    }

    fn apply(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Resync(snapshot) => {
                self.entries = snapshot.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
                self.resyncs += 1;
            }
            WatchEvent::Put(entry) => {
                self.entries.insert(entry.key.clone(), entry);
            }
            WatchEvent::Delete { key, .. } => {
                assert!(self.entries.remove(&key).is_some(), "`{key}` was deleted but not there");
            }
        }
    }

    pub(crate) fn has(&self, key: &str, value: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.value == value)
    }
}
