//! A front end and simulated workers in this process.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};
use switchtower_cluster::DistributedRuntime;
use switchtower_frontend::HttpFrontend;
use switchtower_models::{EngineConfig, Model, ModelSource};
use switchtower_policy::WorkerSelectionPolicyFactory;
use switchtower_scheduling::book::RowLoad;
use switchtower_selection::SelectionHandle;
use switchtower_worker::{Faults, RunningWorker, SimulatedWorker, SimulatedWorkerConfig};

/// Longer than anything takes: a wait that reaches it has failed.
const HANG: Duration = Duration::from_secs(120);

pub(crate) struct Tower {
    address: SocketAddr,
    selection: SelectionHandle,
    workers: Vec<RunningWorker>,
    runtime: DistributedRuntime,
}

impl Tower {
    pub(crate) async fn start(
        workers: u64,
        faults: Faults,
        policy: impl WorkerSelectionPolicyFactory,
    ) -> Self {
        let runtime = DistributedRuntime::in_memory("corridor");
        let config = EngineConfig { http: SocketAddr::from(([127, 0, 0, 1], 0)), ..EngineConfig::default() };
        let frontend = HttpFrontend::default().worker_selection_policy_factory(policy);
        let frontend = frontend.bind(runtime.clone(), config).await.unwrap();
        let (address, selection) = (frontend.local_addr(), frontend.selection());
        runtime.tasks().spawn_named("frontend", frontend.serve());
        let model = Arc::new(Model::load(&ModelSource::BuiltIn).unwrap());
        let mut running = Vec::new();
        for worker_id in 1..=workers {
            let (speed, faults, seed) = (1_000.0, faults.clone(), worker_id);
            let config = SimulatedWorkerConfig { worker_id, speed, faults, seed, ..Default::default() };
            let worker = SimulatedWorker::build(config, Arc::clone(&model), runtime.clone()).await.unwrap();
            running.push(worker.start().await.unwrap());
        }
        let joined = |models: &[switchtower_selection::ModelStatus]| {
            models.iter().map(|model| model.workers as u64).sum::<u64>() == workers
        };
        assert!(selection.wait_for_models(joined).await);
        Self { address, selection, workers: running, runtime }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until nothing is booked, queued or running anywhere; every row's load is zero then.
    pub(crate) async fn until_at_rest(&self) {
        let waiting = async {
            loop {
                let loads = self.selection.loads().await;
                let booked = loads.iter().map(|load| load.reservations + load.waiting).sum::<usize>();
                if booked == 0 && self.workers.iter().all(|worker| worker.requests() == 0) {
                    return loads;
                }
                tokio::task::yield_now().await;
            }
        };
        let loads = tokio::time::timeout(HANG, waiting).await.expect("something is left behind");
        for row in loads.iter().flat_map(|load| &load.rows) {
            assert_eq!(row.load, RowLoad::default(), "row {}", row.info.row);
        }
    }

    /// Waits until the index knows of blocks on the worker that served (`worker/rank`).
    pub(crate) async fn until_cached(&self, worker: &str) {
        let row: switchtower_ids::Row = worker.parse().unwrap();
        let cached = self.workers.iter().find(|running| running.record().worker_id == row.worker);
        let blocks = cached.unwrap().cached_blocks(row.rank).len() as u64;
        let waiting = async {
            while self.selection.loads().await.iter().map(|load| load.index.pairs).sum::<u64>() < blocks {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(HANG, waiting).await.expect("the index never heard of the cached blocks");
    }

    pub(crate) async fn policy_failures(&self) -> BTreeMap<&'static str, u64> {
        let loads = self.selection.loads().await;
        loads.into_iter().flat_map(|load| load.policy_health.failures).collect()
    }

    /// Ends in order; every task ends by itself.
    pub(crate) async fn stop(self) {
        self.runtime.shutdown_token().cancel();
        for worker in self.workers {
            worker.drain(HANG).await;
        }
        assert_eq!(self.runtime.tasks().shutdown(HANG).await, Vec::<String>::new());
    }
}
