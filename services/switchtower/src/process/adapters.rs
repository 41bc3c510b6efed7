//! A process's connections to its cluster, from connecting to letting go.

use crate::{failure::Failure, settings::Settings};
use std::{sync::Arc, time::Duration};
use switchtower_cluster::{ClusterName, DistributedRuntime, RuntimeParts};
use switchtower_etcd::EtcdDiscovery;
use switchtower_nats::NatsBus;
use switchtower_runtime::{CancellationToken, TaskGroup};

/// How long tasks may take to end once everything has drained.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// The connections, and the process's place in its cluster that is made of them.
pub(super) struct Adapters {
    pub(super) runtime: DistributedRuntime,
    /// The connections' own tasks, which outlive the signal: what drains still has to say that it goes.
    pub(super) tasks: TaskGroup,
}

impl Adapters {
    /// Connects to etcd and NATS. Neither has to be there: the adapters try again until it is.
    ///
    /// # Errors
    /// Exit code 64: options that no server could be reached with.
    pub(super) async fn connect(settings: &Settings) -> Result<Self, Failure> {
        let process = TaskGroup::new();
        let tasks = process.child_with_token("cluster", CancellationToken::new());
        let name = ClusterName::from(settings.cluster.name.as_str());
        let discovery = EtcdDiscovery::connect(settings.etcd.clone(), &name, &tasks);
        let bus = NatsBus::connect(settings.nats.clone(), &name, &tasks).await;
        let runtime = DistributedRuntime::new(RuntimeParts {
            cluster_name: name,
            discovery: Arc::new(discovery.map_err(Failure::configuration)?),
            bus: Arc::new(bus.map_err(Failure::configuration)?),
            tasks: process,
        });
        Ok(Self { runtime, tasks })
    }

    /// Lets go of the servers and ends whatever still runs. The last step of a process's life.
    ///
    /// # Errors
    /// A vital task had failed: that is why the process ends.
    pub(super) async fn close(self) -> Result<(), Failure> {
        self.tasks.shutdown(STOP_DEADLINE).await;
        self.runtime.tasks().shutdown(STOP_DEADLINE).await;
        match self.runtime.tasks().failure() {
            Some(failure) => Err(Failure::start(failure)),
            None => Ok(()),
        }
    }
}
