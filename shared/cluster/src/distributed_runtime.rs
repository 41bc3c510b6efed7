//! What one process has of its cluster, in one value that is handed to services.
//!
//! Must not choose an adapter: the command builds the parts. Taken by `SelectionServiceBuilder`, `HttpFrontend`,
//! `EppRouter` and the workers.

use crate::{ClusterName, Discovery, EventBus, memory::MemoryCluster};
use std::{fmt, sync::Arc};
use switchtower_runtime::{CancellationToken, TaskGroup};
use uuid::Uuid;

/// What a [`DistributedRuntime`] is made of.
pub struct RuntimeParts {
    /// The cluster.
    pub cluster_name: ClusterName,
    /// The cluster's records.
    pub discovery: Arc<dyn Discovery>,
    /// The cluster's messages.
    pub bus: Arc<dyn EventBus>,
    /// Where this process's tasks live.
    pub tasks: TaskGroup,
}

/// One process's place in its cluster. Cheap to clone; all clones are the same process.
#[derive(Clone)]
pub struct DistributedRuntime {
    parts: Arc<RuntimeParts>,
    replica: u128,
}

impl DistributedRuntime {
    /// A new life of a process: its [`replica`](Self::replica) identity is drawn here.
    #[must_use]
    pub fn new(parts: RuntimeParts) -> Self {
        Self { parts: Arc::new(parts), replica: Uuid::now_v7().as_u128() }
    }

    /// A cluster of one process, in its memory: its own store and bus, shared by the clones. For several processes on
    /// one store use [`MemoryCluster`].
    #[must_use]
    pub fn in_memory(cluster_name: impl Into<ClusterName>) -> Self {
        MemoryCluster::new(cluster_name).runtime()
    }

    /// The cluster's name.
    #[must_use]
    pub fn cluster_name(&self) -> &ClusterName {
        &self.parts.cluster_name
    }

    /// This life of this process: a UUID of version 7, so later lives compare greater as long as clocks agree.
    #[must_use]
    pub fn replica(&self) -> u128 {
        self.replica
    }

    /// The cluster's records.
    #[must_use]
    pub fn discovery(&self) -> &Arc<dyn Discovery> {
        &self.parts.discovery
    }

    /// The cluster's messages.
    #[must_use]
    pub fn bus(&self) -> &Arc<dyn EventBus> {
        &self.parts.bus
    }

    /// Where this process's tasks live.
    #[must_use]
    pub fn tasks(&self) -> &TaskGroup {
        &self.parts.tasks
    }

    /// Cancelled when the process shall end.
    #[must_use]
    pub fn shutdown_token(&self) -> CancellationToken {
        self.parts.tasks.shutdown_token()
    }
}

impl fmt::Debug for DistributedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedRuntime")
            .field("cluster_name", &self.cluster_name().as_str())
            .field("replica", &format_args!("{:032x}", self.replica))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[tokio::test]
    async fn clones_are_one_process_and_two_runtimes_are_two_clusters() {
        let runtime = DistributedRuntime::in_memory("c");
        let (clone, other) = (runtime.clone(), DistributedRuntime::in_memory("c"));
        runtime.discovery().put("k", Bytes::from_static(b"v"), None).await.unwrap();
        assert!(clone.discovery().get("k").await.unwrap().is_some());
        assert!(other.discovery().get("k").await.unwrap().is_none());
        assert_eq!(runtime.replica(), clone.replica());
        assert!(other.replica() > runtime.replica());
        assert_eq!(Uuid::from_u128(runtime.replica()).get_version_num(), 7);
        runtime.shutdown_token().cancel();
        assert!(clone.shutdown_token().is_cancelled() && !other.shutdown_token().is_cancelled());
    }
}
