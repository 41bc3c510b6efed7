//! The simulated worker's life: build (bind, nothing is visible yet), start (serve, publish, register), drain (no new
//! requests, deregister, finish, stop). Wiring and order only.

use crate::{
    ConfigError, FaultError, Faults, SimulatedWorkerConfig,
    api::router,
    publication::{Publication, PublicationCounts},
    service::Service,
};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use switchtower_cluster::{BusError, DistributedRuntime, Subscription};
use switchtower_engine_sim::EngineLoad;
use switchtower_ids::{Incarnation, Rank as RankNumber, SequenceHash};
use switchtower_models::Model;
use switchtower_runtime::{
    CancellationToken, TaskGroup,
    http_server::{HttpServerOptions, serve},
    retry::{RetryTimes, retry_dependent},
};
use switchtower_selection::{
    records::WorkerRecord,
    registration::{Registration, RegistrationState},
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
    /// Discovery refused or is not there.
    #[error("worker {worker_id} cannot register: {reason}")]
    Register {
        /// The worker.
        worker_id: u64,
        /// Why not.
        reason: String,
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

    /// Serves, publishes, and then registers: whoever finds the record can reach the worker. Where another worker has the id
    /// it serves on and registers when that one is gone: see [`registration`](RunningWorker::registration).
    ///
    /// # Errors
    /// Discovery or bus refuse or are not there; everything that was started stops again.
    pub async fn start(self) -> Result<RunningWorker, WorkerError> {
        let questions = self.questions().await?;
        let running = self.serve(questions);
        match running.registration.settled().await {
            RegistrationState::Pending { reason } => {
                Err(WorkerError::Register { worker_id: running.service.config.worker_id, reason })
            }
            _ => Ok(running),
        }
    }

    /// As [`start`](Self::start), but waits for a cluster that cannot be reached and for a worker that has the id, as long as
    /// it takes; `None` if `stop` is cancelled first. Then everything that was started stops again.
    pub async fn start_when_reachable(
        self,
        times: RetryTimes,
        stop: &CancellationToken,
    ) -> Option<RunningWorker> {
        let questions = retry_dependent("joining the bus", times, stop, || self.questions()).await?;
        let running = self.serve(questions);
        stop.run_until_cancelled(running.registration.registered()).await?;
        Some(running)
    }

    /// What routers ask about past events, of a worker that has any.
    async fn questions(&self) -> Result<Option<Subscription>, WorkerError> {
        let worker_id = self.service.config.worker_id;
        if !self.service.config.kv_events {
            return Ok(None);
        }
        let subject = range_subject(self.service.worker_id(), self.service.incarnation);
        let questions = self.runtime.bus().subscribe(&subject).await;
        questions.map(Some).map_err(|source| WorkerError::Bus { worker_id, source })
    }

    /// Everything, the record last.
    fn serve(self, questions: Option<Subscription>) -> RunningWorker {
        let Self { service, listener, address, endpoint, runtime } = self;
        // A token of its own: the worker ends in its own order, not at the first signal.
        let token = CancellationToken::new();
        let name = format!("worker-{}", service.config.worker_id);
        let tasks = runtime.tasks().child_with_token(name, token.clone());
        let stop = token.drop_guard();
        let publication = Publication { service: Arc::clone(&service), bus: Arc::clone(runtime.bus()) };
        if let Some(questions) = questions {
            tasks.spawn_until_shutdown("ranges", publication.clone().answer_ranges(questions));
        }
        spawn_ranks(&tasks, &publication);
        spawn_server(&tasks, listener, &service);
        tasks.spawn_until_shutdown("loads", publication.publish_loads());
        let ttl = Duration::from_millis(service.config.lease_ttl_ms);
        let registration = Registration::start(&runtime, service.record(&endpoint, false), ttl, &tasks);
        RunningWorker { service, address, endpoint, tasks, registration, _stop: stop }
    }
}

/// The engines, and the publishers of their logs if they have any.
fn spawn_ranks(tasks: &TaskGroup, publication: &Publication) {
    for rank in &publication.service.ranks {
        let number = rank.number();
        tasks.spawn_until_shutdown(format!("rank-{number}"), Arc::clone(rank).drive());
        if publication.service.config.kv_events {
            tasks.spawn_until_shutdown(format!("log-{number}"), publication.clone().publish_log(number));
        }
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
    tasks: TaskGroup,
    registration: Registration,
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

    /// What its record says now.
    #[must_use]
    pub fn record(&self) -> WorkerRecord {
        self.service.record(&self.endpoint, self.service.gate.is_closed())
    }

    /// Its record's place in discovery: whether it stands, and when it does.
    #[must_use]
    pub fn registration(&self) -> &Registration {
        &self.registration
    }

    /// Ends when the worker should [drain](Self::drain) and end: a later life has taken its place, or it has not been
    /// registered for as long as its configuration allows. Says why.
    pub async fn lost(&self) -> RegistrationState {
        self.registration.lost(Duration::from_millis(self.service.config.unregistered_limit_ms)).await
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

    /// What of one rank's KV log has gone to the bus; `None` if there is no such rank.
    #[must_use]
    pub fn publication(&self, rank: RankNumber) -> Option<PublicationCounts> {
        Some(self.service.rank(rank)?.publication())
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
    pub async fn drain(self, deadline: Duration) -> Drained {
        let worker_id = self.service.config.worker_id;
        self.service.gate.close();
        self.registration.update(self.record());
        let cut = self.service.gate.emptied(deadline).await;
        self.registration.end().await;
        self.tasks.shutdown(Duration::from_secs(5)).await;
        tracing::info!(worker_id, cut, "the worker has drained");
        Drained { cut }
    }
}
