//! The ports in memory: for tests, for `switchtower up`, and as the model that the real adapters are compared with.
//!
//! A [`MemoryStore`] and a [`MemoryBus`] stand for the servers and may carry several clusters; a [`MemoryDiscovery`] and
//! a [`MemoryEventBus`] are one process's connection to them, with hooks for what goes wrong with real ones. Time does
//! not pass here: a lease ends when its handle is dropped or revoked, or when a test expires it; a handle that is leaked
//! keeps its keys for ever, whatever its TTL.

mod bus;
mod delivery;
mod faults;
mod records;
mod store;

pub use bus::{MAX_PAYLOAD_BYTES, MemoryBus, MemoryEventBus};
pub use faults::BusFaults;
pub use store::{MemoryDiscovery, MemoryStore};

use crate::{ClusterName, DistributedRuntime, RuntimeParts};
use std::sync::Arc;
use switchtower_runtime::TaskGroup;

/// One cluster in memory that several processes join.
#[derive(Clone)]
pub struct MemoryCluster {
    name: ClusterName,
    store: MemoryStore,
    bus: MemoryBus,
}

/// One process's connections, kept beside its [`DistributedRuntime`] by a test that wants to break them.
#[derive(Clone)]
pub struct MemoryConnection {
    /// The connection to the store.
    pub discovery: MemoryDiscovery,
    /// The connection to the bus.
    pub bus: MemoryEventBus,
    name: ClusterName,
}

impl MemoryCluster {
    /// A cluster with a store and a bus of its own.
    #[must_use]
    pub fn new(name: impl Into<ClusterName>) -> Self {
        Self { name: name.into(), store: MemoryStore::new(), bus: MemoryBus::new() }
    }

    /// The bus, for its faults.
    #[must_use]
    pub fn bus(&self) -> &MemoryBus {
        &self.bus
    }

    /// The connections of one more process.
    #[must_use]
    pub fn connect(&self) -> MemoryConnection {
        MemoryConnection {
            discovery: self.store.connect(&self.name),
            bus: self.bus.connect(&self.name),
            name: self.name.clone(),
        }
    }

    /// One more process: connections, an identity and a task group of its own.
    #[must_use]
    pub fn runtime(&self) -> DistributedRuntime {
        self.connect().runtime()
    }
}

impl MemoryConnection {
    /// A process that uses these connections.
    #[must_use]
    pub fn runtime(&self) -> DistributedRuntime {
        DistributedRuntime::new(RuntimeParts {
            cluster_name: self.name.clone(),
            discovery: Arc::new(self.discovery.clone()),
            bus: Arc::new(self.bus.clone()),
            tasks: TaskGroup::new(),
        })
    }

    /// Cuts or restores both connections.
    pub fn set_reachable(&self, reachable: bool) {
        self.discovery.set_reachable(reachable);
        self.bus.set_reachable(reachable);
    }

    /// What the rest of the cluster sees of a process that died and whose leases have run out. The connections stay
    /// cut until `set_reachable(true)`, which makes it a process that was only away.
    pub fn vanish(&self) {
        self.set_reachable(false);
        self.discovery.expire_leases();
    }
}
