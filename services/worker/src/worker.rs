//! The simulated worker's life: build (bind, nothing is visible yet), start (serve, publish, register), drain (no new
//! requests, deregister, finish, stop). Wiring and order only.

use crate::{
    ConfigError, FaultError, Faults, SimulatedWorkerConfig, api::router, publication::Publication,
    service::Service,
};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use switchtower_cluster::{BusError, DiscoveryError, DistributedRuntime, Lease};
use switchtower_engine_sim::EngineLoad;
use switchtower_ids::{Incarnation, Rank as RankNumber, SequenceHash};
use switchtower_models::Model;
use switchtower_runtime::{
    CancellationToken, TaskGroup,
    http_server::{HttpServerOptions, serve},
};
use switchtower_selection::{
    records::{RecordError, WorkerRecord},
    wire::range_subject,
};
use tokio::net::TcpListener;
use tokio_util::sync::DropGuard;

/// Why a worker does not start.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address.
    #[error("worker {worker_id} cannot listen on {address} ({source}): choose a free one, or port 0")]
    Listen {
        /// The worker.
        worker_id: u64,
        /// What it was told.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The record.
    #[error("worker {worker_id} cannot write its record: {source}")]
    Record {
        /// The worker.
        worker_id: u64,
        /// Why not.
        source: RecordError,
    },
    /// Discovery refused or is not there.
    #[error("worker {worker_id} cannot register: {source}")]
    Register {
        /// The worker.
        worker_id: u64,
        /// Why not.
        source: DiscoveryError,
    },
    /// The bus refused or is not there.
    #[error("worker {worker_id} cannot answer questions on the bus: {source}")]
    Bus {
        /// The worker.
        worker_id: u64,
        /// Why not.
        source: BusError,
    },
}

/// A worker that is bound and not yet visible.
#[derive(Debug)]
pub struct SimulatedWorker {
    service: Arc<Service>,
    listener: TcpListener,
    address: SocketAddr,
    endpoint: String,
    runtime: DistributedRuntime,
}

impl SimulatedWorker {
    /// A new life of the worker: checks its configuration, draws its incarnation and binds its address.
    ///
    /// # Errors
    /// The configuration is wrong or the address is taken.
    pub async fn build(
        config: SimulatedWorkerConfig,
        model: Arc<Model>,
        runtime: DistributedRuntime,
    ) -> Result<Self, WorkerError> {
        let service = Arc::new(Service::new(config, model)?);
        let config = &service.config;
        let failed =
            |source| WorkerError::Listen { worker_id: config.worker_id, address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let endpoint = config.advertise.clone().unwrap_or_else(|| format!("http://{address}"));
        Ok(Self { service, listener, address, endpoint, runtime })
    }

    /// Where it will listen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves, publishes, and then registers: whoever finds the record can reach the worker.
    ///
    /// # Errors
    /// Discovery or bus refuse or are not there; everything that was started stops again.
    pub async fn start(self) -> Result<RunningWorker, WorkerError> {
        let Self { service, listener, address, endpoint, runtime } = self;
        let worker_id = service.config.worker_id;
        // A token of its own: the worker ends in its own order, not at the first signal.
        let token = CancellationToken::new();
        let tasks = runtime.tasks().child_with_token(format!("worker-{worker_id}"), token.clone());
        let stop = token.drop_guard();
        let subject = range_subject(service.worker_id(), service.incarnation);
        let questions = runtime.bus().subscribe(&subject).await;
        let questions = questions.map_err(|source| WorkerError::Bus { worker_id, source })?;

        let publication = Publication { service: Arc::clone(&service), bus: Arc::clone(runtime.bus()) };
        tasks.spawn_until_shutdown("ranges", publication.clone().answer_ranges(questions));
        spawn_ranks(&tasks, &publication);
        spawn_server(&tasks, listener, &service);
        let mut running =
            RunningWorker { service, address, endpoint, runtime, tasks, lease: None, _stop: stop };
        running.register().await?;
        running.tasks.spawn_until_shutdown("loads", publication.publish_loads());
        Ok(running)
    }
}

/// The engines, and the publishers of their logs.
fn spawn_ranks(tasks: &TaskGroup, publication: &Publication) {
    for rank in &publication.service.ranks {
        let number = rank.number();
        tasks.spawn_until_shutdown(format!("rank-{number}"), Arc::clone(rank).drive());
        tasks.spawn_until_shutdown(format!("log-{number}"), publication.clone().publish_log(number));
    }
}

fn spawn_server(tasks: &TaskGroup, listener: TcpListener, service: &Arc<Service>) {
    // By then the gate has waited for the answers and the engines stop, so what is left are last bytes on their way.
    let (drain, drain_idle) = (Duration::from_secs(2), Duration::from_millis(100));
    let options = HttpServerOptions { drain, drain_idle, ..HttpServerOptions::default() };
    let server = serve(listener, router(Arc::clone(service)), options, tasks, tasks.shutdown_token());
    tasks.spawn_named("server", async move {
        server.await;
    });
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Requests that were still inside at the deadline and were cut.
    pub cut: usize,
}

/// A worker that serves. Dropping it is a crash for its clients: every connection breaks. Its record goes with its lease.
#[derive(Debug)]
pub struct RunningWorker {
    service: Arc<Service>,
    address: SocketAddr,
    endpoint: String,
    runtime: DistributedRuntime,
    tasks: TaskGroup,
    lease: Option<Lease>,
    _stop: DropGuard,
}

impl RunningWorker {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its base URL, as in its record.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// This life.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.service.incarnation
    }

    /// Its record as it was registered.
    #[must_use]
    pub fn record(&self) -> WorkerRecord {
        self.service.record(&self.endpoint, self.service.gate.is_closed())
    }

    /// Requests that are inside.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.service.gate.inside()
    }

    /// The load of one rank, right now; `None` if there is no such rank.
    #[must_use]
    pub fn load(&self, rank: RankNumber) -> Option<EngineLoad> {
        Some(self.service.rank(rank)?.load())
    }

    /// Every block in one rank's cache; empty if there is no such rank.
    #[must_use]
    pub fn cached_blocks(&self, rank: RankNumber) -> Vec<SequenceHash> {
        self.service.rank(rank).map(|rank| rank.cached_blocks()).unwrap_or_default()
    }

    /// Changes what goes wrong from now on.
    ///
    /// # Errors
    /// A probability that is none.
    pub fn set_faults(&self, faults: Faults) -> Result<(), FaultError> {
        faults.validate()?;
        self.service.faults.set(faults);
        Ok(())
    }

    /// Ends this life in order: the record says `draining`, new requests get 503, those inside have until `deadline` to
    /// finish, the record goes, everything stops.
    pub async fn drain(mut self, deadline: Duration) -> Drained {
        let worker_id = self.service.config.worker_id;
        self.service.gate.close();
        if let Err(error) = self.announce_drain().await {
            tracing::warn!(worker_id, %error, "the drain is not announced");
        }
        let cut = self.service.gate.emptied(deadline).await;
        if let Some(lease) = self.lease.take()
            && let Err(error) = lease.revoke().await
        {
            tracing::warn!(worker_id, %error, "the record stays until its lease ends");
        }
        self.tasks.shutdown(Duration::from_secs(5)).await;
        tracing::info!(worker_id, cut, "the worker has drained");
        Drained { cut }
    }

    async fn register(&mut self) -> Result<(), WorkerError> {
        let worker_id = self.service.config.worker_id;
        let ttl = Duration::from_millis(self.service.config.lease_ttl_ms);
        let lease = self.runtime.discovery().grant(ttl).await;
        self.lease = Some(lease.map_err(|source| WorkerError::Register { worker_id, source })?);
        self.put_record().await
    }

    /// Leaves the record alone where a later life of this worker has written its own.
    async fn announce_drain(&self) -> Result<(), WorkerError> {
        let worker_id = self.service.config.worker_id;
        let key = self.record().key();
        let found = self.runtime.discovery().get(&key).await;
        let found = found.map_err(|source| WorkerError::Register { worker_id, source })?;
        let record = found.and_then(|entry| WorkerRecord::parse(&key, &entry.value).ok());
        match record {
            Some(record) if record.incarnation == self.incarnation() => self.put_record().await,
            _ => Ok(()),
        }
    }

    async fn put_record(&self) -> Result<(), WorkerError> {
        let worker_id = self.service.config.worker_id;
        let record = self.record();
        let json = record.to_json().map_err(|source| WorkerError::Record { worker_id, source })?;
        let put = self.runtime.discovery().put(&record.key(), json.into(), self.lease.as_ref()).await;
        put.map(|_| ()).map_err(|source| WorkerError::Register { worker_id, source })
    }
}
