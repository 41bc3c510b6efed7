//! [`Discovery`] in memory: one ordered map with revisions, and the connections that look at it.
//!
//! Everything happens under one lock and nothing waits, so that every change reaches every watch in the order of
//! revisions. Must not use a clock.

use super::records::{ConnectionState, LeaseState, State, Watcher};
use crate::{
    ClusterName, Discovery, DiscoveryError, Entry, Lease, LeaseControl, LeaseId, PortHealth, Revision,
    Snapshot, WATCH_LIMITS, Watch, check_key, check_prefix, check_put,
};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// The store that connections share; stands for the server.
#[derive(Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

/// One process's connection to a cluster's part of a [`MemoryStore`]. Clones are the same connection. When the last
/// clone and the last lease are dropped, its watches end.
#[derive(Clone)]
pub struct MemoryDiscovery {
    connection: Arc<Connection>,
}

struct Connection {
    id: u64,
    root: String,
    state: Arc<Mutex<State>>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new connection to the records of one cluster.
    #[must_use]
    pub fn connect(&self, cluster: &ClusterName) -> MemoryDiscovery {
        let root = format!("/switchtower/{}/", cluster.escaped());
        let mut state = self.state.lock();
        let id = state.fresh_id();
        let connection = ConnectionState {
            root: root.clone(),
            reachable: true,
            watchers: Vec::new(),
            leases: HashMap::new(),
        };
        state.connections.insert(id, connection);
        drop(state);
        MemoryDiscovery { connection: Arc::new(Connection { id, root, state: Arc::clone(&self.state) }) }
    }
}

/// Hooks: what goes wrong with real stores.
impl MemoryDiscovery {
    /// Cuts or restores the connection. While cut, calls fail with `Unavailable`, watches hear nothing, and leases live
    /// on in the store until [`expire_leases`](Self::expire_leases). Restoring gets lost leases back and gives every
    /// watch a `Resync`.
    pub fn set_reachable(&self, reachable: bool) {
        let id = self.connection.id;
        let mut state = self.connection.state.lock();
        let Some(connection) = state.connections.get_mut(&id) else {
            return;
        };
        let returns = reachable && !connection.reachable;
        connection.reachable = reachable;
        if returns {
            state.end_released(id);
            state.put_keys_again(id);
            state.resync(id);
        }
    }

    /// The store loses this connection's leases: their keys are deleted. If the connection is up it notices at once and
    /// puts them again, as rule 2 asks; if it is cut, when it returns.
    pub fn expire_leases(&self) {
        let id = self.connection.id;
        let mut state = self.connection.state.lock();
        state.end_released(id);
        for lease in state.leases_of(id) {
            state.remove_leased(lease);
        }
        if state.connections.get(&id).is_some_and(|connection| connection.reachable) {
            state.put_keys_again(id);
        }
    }

    /// Gives every watch of this connection a `Resync`, as after a compaction or a reconnect, in place of what waits.
    pub fn force_resync(&self) {
        self.connection.state.lock().resync(self.connection.id);
    }
}

#[async_trait]
impl Discovery for MemoryDiscovery {
    async fn put(&self, key: &str, value: Bytes, lease: Option<&Lease>) -> Result<Revision, DiscoveryError> {
        check_put(key, &value)?;
        let mut state = self.connection.lock("put a record")?;
        self.connection.put(&mut state, key, value, lease)
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        lease: Option<&Lease>,
        expected: Option<Revision>,
    ) -> Result<Option<Revision>, DiscoveryError> {
        check_put(key, &value)?;
        let mut state = self.connection.lock("put a record")?;
        let found = state.entries.get(&self.connection.full(key)).map(|stored| stored.revision);
        if found != expected {
            return Ok(None);
        }
        self.connection.put(&mut state, key, value, lease).map(Some)
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>, DiscoveryError> {
        check_key(key)?;
        let state = self.connection.lock("get a record")?;
        let stored = state.entries.get(&self.connection.full(key));
        Ok(stored.map(|stored| stored.entry(key)))
    }

    async fn list(&self, prefix: &str) -> Result<Snapshot, DiscoveryError> {
        check_prefix(prefix)?;
        let state = self.connection.lock("list records")?;
        Ok(state.snapshot(&self.connection.root, &self.connection.full(prefix)))
    }

    async fn delete(&self, key: &str) -> Result<bool, DiscoveryError> {
        check_key(key)?;
        let full = self.connection.full(key);
        let mut state = self.connection.lock("delete a record")?;
        state.forget(self.connection.id, &full);
        Ok(state.delete(&full))
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease, DiscoveryError> {
        if ttl < Duration::from_secs(1) {
            return Err(DiscoveryError::InvalidTtl { ttl_ms: ttl.as_millis() });
        }
        let mut state = self.connection.lock("grant a lease")?;
        let id = LeaseId(state.fresh_id());
        if let Some(connection) = state.connections.get_mut(&self.connection.id) {
            connection.leases.insert(id, LeaseState::default());
        }
        drop(state);
        Ok(Lease::new(id, ttl, Arc::clone(&self.connection) as Arc<dyn LeaseControl>))
    }

    async fn watch(&self, prefix: &str) -> Result<Watch, DiscoveryError> {
        check_prefix(prefix)?;
        let prefix = self.connection.full(prefix);
        let mut state = self.connection.state.lock();
        let (events, watch) = Watch::channel(WATCH_LIMITS);
        let snapshot = state.snapshot(&self.connection.root, &prefix);
        if let Some(connection) = state.connections.get_mut(&self.connection.id) {
            // While cut it waits for the resync that all watches get when the connection returns.
            if connection.reachable {
                events.resync(snapshot);
            }
            connection.watchers.push(Watcher { prefix, events });
        }
        Ok(watch)
    }

    fn health(&self) -> PortHealth {
        let state = self.connection.state.lock();
        let connection = state.connections.get(&self.connection.id);
        PortHealth::in_memory(connection.is_some_and(|connection| connection.reachable))
    }
}

impl Connection {
    fn put(
        &self,
        state: &mut State,
        key: &str,
        value: Bytes,
        lease: Option<&Lease>,
    ) -> Result<Revision, DiscoveryError> {
        let lease = lease.map(Lease::id);
        if let Some(lease) = lease.filter(|lease| !state.leases_of(self.id).contains(lease)) {
            return Err(DiscoveryError::UnknownLease { lease });
        }
        let full = self.full(key);
        state.forget(self.id, &full);
        state.remember(self.id, lease, &full, &value);
        Ok(state.put(&full, value, lease))
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.root)
    }

    fn lock(&self, operation: &'static str) -> Result<MutexGuard<'_, State>, DiscoveryError> {
        let state = self.state.lock();
        if state.connections.get(&self.id).is_some_and(|connection| connection.reachable) {
            return Ok(state);
        }
        Err(DiscoveryError::Unavailable { operation, reason: "the connection is cut".to_owned() })
    }
}

#[async_trait]
impl LeaseControl for Connection {
    async fn revoke(&self, lease: LeaseId) -> Result<(), DiscoveryError> {
        self.lock("revoke a lease")?.end(self.id, lease);
        Ok(())
    }

    fn release(&self, lease: LeaseId) {
        let mut state = self.state.lock();
        match state.connections.get_mut(&self.id) {
            Some(connection) if !connection.reachable => {
                if let Some(lease) = connection.leases.get_mut(&lease) {
                    lease.ended = true;
                }
            }
            _ => state.end(self.id, lease),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Every lease's handle holds this connection, so only those that were released while it was cut are left.
        let mut state = self.state.lock();
        state.end_released(self.id);
        let connection = state.connections.remove(&self.id);
        drop(state);
        drop(connection);
    }
}
