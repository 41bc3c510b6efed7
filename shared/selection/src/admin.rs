//! What an operator sees and does through any replica: workers, index, replicas, drains. Shown from the tables that route;
//! what is done goes into discovery, so that every replica hears of it.

use crate::{
    IndexRow, SelectionHandle, WorkerStatus,
    records::{DrainSetting, REPLICAS, RecordError, ReplicaRecord},
    registry::{IndexQuestions, LatestReports, RegistryView},
};
use serde::Serialize;
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use switchtower_cluster::{Discovery, DiscoveryError, EventBus, PortHealth};
use switchtower_ids::WorkerId;

/// How long a drain or its end waits until this replica has seen it. Others see it when they do.
const SEEN_DEADLINE: Duration = Duration::from_secs(2);

/// Why an operator's word is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// No worker of this id is registered, nor is one drained.
    #[error("no worker {0} is registered: see the list of workers")]
    UnknownWorker(WorkerId),
    /// The reason cannot be kept.
    #[error(transparent)]
    Setting(#[from] RecordError),
    /// The store does not take or give it.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
}

/// What came of an operator's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainOutcome {
    /// The worker gets nothing new from now on.
    Drained,
    /// It got nothing new before; the reason is the new one.
    AlreadyDrained,
    /// The worker gets requests again, unless it says `draining` itself.
    Resumed,
    /// No operator had drained it.
    NotDrained,
}

/// How the connections to the cluster are doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterHealth {
    /// The store of records.
    pub discovery: PortHealth,
    /// The bus.
    pub bus: PortHealth,
}

/// What the handle asks for an operator.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) discovery: Arc<dyn Discovery>,
    pub(crate) bus: Arc<dyn EventBus>,
    pub(crate) latest: LatestReports,
    pub(crate) questions: IndexQuestions,
}

impl Admin {
    pub(crate) fn health(&self) -> ClusterHealth {
        ClusterHealth { discovery: self.discovery.health(), bus: self.bus.health() }
    }
}

impl SelectionHandle {
    /// Whether this replica may be given requests: it has seen all records, and the index has every row's KV event log, or as
    /// much as its worker gave in a bounded time. Stays so: what comes later is followed as it comes, and while the cluster
    /// cannot be reached the last known state routes.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.views.borrow().caught_up
    }

    /// Waits until [`is_ready`](Self::is_ready); returns at once if the service has ended.
    pub async fn ready(&self) {
        let mut views = self.views.clone();
        drop(views.wait_for(|view| view.caught_up).await);
    }

    /// The workers that take part, by id.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let mut workers = self.views.borrow().workers.clone();
        for worker in &mut workers {
            let WorkerStatus { worker_id, ranks, incarnation, .. } = *worker;
            worker.report_age_ms = self.admin.latest.age_of_worker(worker_id, ranks, incarnation);
        }
        workers
    }

    /// What the index holds, by partition, row and tier. Looks at the whole index: for people and comparisons.
    pub async fn index_rows(&self) -> Vec<IndexRow> {
        // Before, nobody listens to the question.
        if self.is_synced() { self.admin.questions.index_rows().await } else { Vec::new() }
    }

    /// How the connections to the cluster are doing.
    #[must_use]
    pub fn cluster_health(&self) -> ClusterHealth {
        self.admin.health()
    }

    /// The routers that have announced themselves, by id. What does not parse is left out.
    ///
    /// # Errors
    /// Discovery cannot be reached.
    pub async fn replicas(&self) -> Result<Vec<ReplicaRecord>, DiscoveryError> {
        let found = self.admin.discovery.list(REPLICAS).await?;
        let records = found.entries.iter();
        Ok(records.filter_map(|entry| ReplicaRecord::parse(&entry.key, &entry.value).ok()).collect())
    }

    /// Keeps new requests from a worker, at every replica, until [`resume`](Self::resume); what runs there goes on. Holds
    /// for the worker's later lives too.
    ///
    /// # Errors
    /// There is no such worker, the reason is too long, or discovery cannot be reached.
    pub async fn drain(&self, worker: WorkerId, reason: &str) -> Result<DrainOutcome, AdminError> {
        let setting = DrainSetting::new(worker, reason, unix_ms())?;
        let key = DrainSetting::key_of(worker);
        let was_drained = self.admin.discovery.get(&key).await?.is_some();
        if !was_drained && self.drained(worker).is_none() {
            return Err(AdminError::UnknownWorker(worker));
        }
        self.admin.discovery.put(&key, setting.to_json()?.into(), None).await?;
        self.see(worker, true).await;
        tracing::info!(worker = worker.0, reason, "the worker is drained");
        Ok(if was_drained { DrainOutcome::AlreadyDrained } else { DrainOutcome::Drained })
    }

    /// Gives a drained worker requests again, at every replica.
    ///
    /// # Errors
    /// There is no such worker, drained or not, or discovery cannot be reached.
    pub async fn resume(&self, worker: WorkerId) -> Result<DrainOutcome, AdminError> {
        if !self.admin.discovery.delete(&DrainSetting::key_of(worker)).await? {
            let known = self.drained(worker).ok_or(AdminError::UnknownWorker(worker));
            return known.map(|_| DrainOutcome::NotDrained);
        }
        self.see(worker, false).await;
        tracing::info!(worker = worker.0, "the worker is no longer drained");
        Ok(DrainOutcome::Resumed)
    }

    /// Whether a registered worker is drained, as this replica knows it.
    fn drained(&self, worker: WorkerId) -> Option<bool> {
        drained_in(&self.views.borrow(), worker)
    }

    /// Waits a little until this replica knows it too: whoever has just said it wants to see it.
    async fn see(&self, worker: WorkerId, drained: bool) {
        let mut views = self.views.clone();
        let seen = views.wait_for(|view| drained_in(view, worker).is_none_or(|known| known == drained));
        drop(tokio::time::timeout(SEEN_DEADLINE, seen).await);
    }
}

fn drained_in(view: &RegistryView, worker: WorkerId) -> Option<bool> {
    let found = view.workers.binary_search_by_key(&worker, |status| status.worker_id).ok()?;
    Some(view.workers[found].drained)
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
