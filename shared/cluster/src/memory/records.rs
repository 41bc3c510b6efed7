//! What the store in memory holds: records with revisions, and each connection's watches and leases.
//!
//! Plain state without a lock or an error: [`store`](super::store) owns the lock and decides who may call what. Every
//! change goes through `put` or `delete`, which tell the watches.

use crate::{Entry, LeaseId, Revision, Sent, Snapshot, WatchEvent, WatchSender};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
};

#[derive(Default)]
pub(super) struct State {
    pub(super) revision: u64,
    pub(super) next_id: u64,
    /// By full key.
    pub(super) entries: BTreeMap<String, Stored>,
    pub(super) connections: HashMap<u64, ConnectionState>,
}

pub(super) struct Stored {
    pub(super) value: Bytes,
    pub(super) create_revision: Revision,
    pub(super) revision: Revision,
    pub(super) lease: Option<LeaseId>,
}

pub(super) struct ConnectionState {
    /// What its keys begin with: the cluster.
    pub(super) root: String,
    pub(super) reachable: bool,
    pub(super) watchers: Vec<Watcher>,
    pub(super) leases: HashMap<LeaseId, LeaseState>,
}

pub(super) struct Watcher {
    /// Full.
    pub(super) prefix: String,
    pub(super) events: WatchSender,
}

#[derive(Default)]
pub(super) struct LeaseState {
    /// What is put again when the store loses the lease; by full key.
    pub(super) keys: BTreeMap<String, Bytes>,
    /// Its handle was dropped while the store could not be reached.
    pub(super) ended: bool,
}

impl Stored {
    pub(super) fn entry(&self, key: &str) -> Entry {
        Entry {
            key: key.to_owned(),
            value: self.value.clone(),
            create_revision: self.create_revision,
            revision: self.revision,
        }
    }
}

impl State {
    pub(super) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn next_revision(&mut self) -> Revision {
        self.revision += 1;
        Revision(self.revision)
    }

    pub(super) fn put(&mut self, full: &str, value: Bytes, lease: Option<LeaseId>) -> Revision {
        let revision = self.next_revision();
        let create_revision = self.entries.get(full).map_or(revision, |stored| stored.create_revision);
        self.entries.insert(full.to_owned(), Stored { value, create_revision, revision, lease });
        self.announce(full, revision);
        revision
    }

    pub(super) fn delete(&mut self, full: &str) -> bool {
        if self.entries.remove(full).is_none() {
            return false;
        }
        let revision = self.next_revision();
        self.announce(full, revision);
        true
    }

    /// Tells every reachable watch of a key how it stands now. A watch without room starts over.
    pub(super) fn announce(&mut self, full: &str, revision: Revision) {
        let Self { entries, connections, .. } = self;
        for connection in connections.values_mut().filter(|connection| connection.reachable) {
            let Some(key) = full.strip_prefix(&connection.root) else {
                continue;
            };
            let root = &connection.root;
            connection.watchers.retain(|watcher| {
                if !full.starts_with(&watcher.prefix) {
                    return !watcher.events.is_gone();
                }
                let event = match entries.get(full) {
                    Some(stored) => WatchEvent::Put(stored.entry(key)),
                    None => WatchEvent::Delete { key: key.to_owned(), revision },
                };
                match watcher.events.send(event) {
                    Sent::Queued => true,
                    Sent::Full => watcher.events.resync(snapshot(entries, revision, root, &watcher.prefix)),
                    Sent::Gone => false,
                }
            });
        }
    }

    pub(super) fn snapshot(&self, root: &str, prefix: &str) -> Snapshot {
        snapshot(&self.entries, Revision(self.revision), root, prefix)
    }

    pub(super) fn resync(&mut self, connection: u64) {
        let Self { entries, connections, revision, .. } = self;
        let Some(connection) = connections.get_mut(&connection) else {
            return;
        };
        let root = &connection.root;
        connection.watchers.retain(|watcher| {
            watcher.events.resync(snapshot(entries, Revision(*revision), root, &watcher.prefix))
        });
    }

    pub(super) fn leases_of(&self, connection: u64) -> Vec<LeaseId> {
        self.connections
            .get(&connection)
            .map(|connection| connection.leases.keys().copied().collect())
            .unwrap_or_default()
    }

    pub(super) fn remember(&mut self, connection: u64, lease: Option<LeaseId>, full: &str, value: &Bytes) {
        let connection = self.connections.get_mut(&connection);
        if let Some(lease) =
            connection.zip(lease).and_then(|(connection, lease)| connection.leases.get_mut(&lease))
        {
            lease.keys.insert(full.to_owned(), value.clone());
        }
    }

    /// The key leaves whichever of the connection's leases it was under.
    pub(super) fn forget(&mut self, connection: u64, full: &str) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.leases.values_mut().for_each(|lease| {
                lease.keys.remove(full);
            });
        }
    }

    pub(super) fn end(&mut self, connection: u64, lease: LeaseId) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.leases.remove(&lease);
        }
        self.remove_leased(lease);
    }

    /// Ends the leases whose handles went while the connection was cut.
    pub(super) fn end_released(&mut self, connection: u64) {
        for lease in self.leases_of(connection) {
            let ended = |state: &Self| Some(state.connections.get(&connection)?.leases.get(&lease)?.ended);
            if ended(self) == Some(true) {
                self.end(connection, lease);
            }
        }
    }

    pub(super) fn remove_leased(&mut self, lease: LeaseId) {
        let under = |stored: &Stored| stored.lease == Some(lease);
        let keys: Vec<String> =
            self.entries.iter().filter(|(_, stored)| under(stored)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.delete(&key);
        }
    }

    /// Rule 2: what the store lost is put again, unless the key has another owner by now.
    pub(super) fn put_keys_again(&mut self, connection: u64) {
        for lease in self.leases_of(connection) {
            for (key, value) in self.keys_of(connection, lease) {
                match self.entries.get(&key) {
                    None => {
                        self.put(&key, value, Some(lease));
                    }
                    Some(stored) if stored.lease == Some(lease) => {}
                    Some(_) => self.forget(connection, &key),
                }
            }
        }
    }

    pub(super) fn keys_of(&self, connection: u64, lease: LeaseId) -> BTreeMap<String, Bytes> {
        let lease = self.connections.get(&connection).and_then(|connection| connection.leases.get(&lease));
        lease.map(|lease| lease.keys.clone()).unwrap_or_default()
    }
}

fn snapshot(entries: &BTreeMap<String, Stored>, revision: Revision, root: &str, prefix: &str) -> Snapshot {
    let under = entries
        .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
        .take_while(|(key, _)| key.starts_with(prefix));
    let relative = under.filter_map(|(key, stored)| Some(stored.entry(key.strip_prefix(root)?)));
    Snapshot { entries: relative.collect(), revision }
}
