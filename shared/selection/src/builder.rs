//! Puts a selection service together and starts its tasks.

use crate::{
    SelectionOptions, SelectionService,
    admin::Admin,
    clock::ServiceClock,
    metrics::IngestMetrics,
    partition::KeySource,
    registry::{
        Follower, IndexQuestions, LatestReports, Outlets, PartitionFactory, RecordFeed, RegistryView,
        Subscriptions,
    },
    service::Parts,
    wire,
};
use std::sync::{Arc, atomic::AtomicU64};
use switchtower_cluster::{BusError, DiscoveryError, DistributedRuntime};
use switchtower_ids::ReplicaId;
use switchtower_policies::{Catalogue, UnknownPolicy};
use switchtower_policy::{InvalidConfig, KvRouterConfig, WorkerSelectionPolicyFactory};
use switchtower_runtime::{
    CancellationToken, OnError,
    retry::{RetryTimes, retry_dependent},
};
use tokio::sync::watch;

/// Why a service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A setting is out of range.
    #[error("the router's configuration is not valid: {0}")]
    Config(#[from] InvalidConfig),
    /// A policy's name is not in the catalogue.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    /// The records of workers cannot be watched.
    #[error("cannot follow the workers: {0}")]
    Discovery(#[from] DiscoveryError),
    /// The workers' messages cannot be heard.
    #[error("cannot hear the workers: {0}")]
    Bus(#[from] BusError),
}

/// Builds a [`SelectionService`].
///
/// ```
/// # use switchtower_policy::{KvRouterConfig, RoutingPartitionRef, WorkerSelectionPolicy};
/// # use switchtower_selection::SelectionServiceBuilder;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # let my_policy = |config: &KvRouterConfig, label: &'static str, partition: RoutingPartitionRef<'_>|
/// #     -> WorkerSelectionPolicy { switchtower_policies::active_requests(config, label, partition) };
/// let service = SelectionServiceBuilder::new(KvRouterConfig::default())
///     .worker_selection_policy_factory(my_policy)
///     .build()
///     .await?;
/// # service.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct SelectionServiceBuilder {
    config: KvRouterConfig,
    factory: Option<Arc<dyn WorkerSelectionPolicyFactory>>,
    catalogue: Catalogue,
    runtime: Option<DistributedRuntime>,
    options: SelectionOptions,
}

impl SelectionServiceBuilder {
    /// A service with these settings, on an in-memory cluster of its own, with the built-in policies.
    #[must_use]
    pub fn new(config: KvRouterConfig) -> Self {
        let options = SelectionOptions::default();
        Self { config, factory: None, catalogue: Catalogue::built_in(), runtime: None, options }
    }

    /// Serves with the policies that `factory` builds, whatever policy the settings name.
    #[must_use]
    pub fn worker_selection_policy_factory(self, factory: impl WorkerSelectionPolicyFactory) -> Self {
        self.shared_policy_factory(Arc::new(factory))
    }

    /// As [`worker_selection_policy_factory`](Self::worker_selection_policy_factory), for a factory that is shared.
    #[must_use]
    pub fn shared_policy_factory(mut self, factory: Arc<dyn WorkerSelectionPolicyFactory>) -> Self {
        self.factory = Some(factory);
        self
    }

    /// Finds the policies that the settings name in `catalogue`.
    #[must_use]
    pub fn catalogue(mut self, catalogue: Catalogue) -> Self {
        self.catalogue = catalogue;
        self
    }

    /// Joins this cluster.
    #[must_use]
    pub fn distributed_runtime(mut self, runtime: DistributedRuntime) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// With these limits and times.
    #[must_use]
    pub fn options(mut self, options: SelectionOptions) -> Self {
        self.options = options;
        self
    }

    /// Checks the settings, subscribes and starts. Workers that are registered already are known soon after: see
    /// [`SelectionHandle::ready`](crate::SelectionHandle::ready). While the cluster cannot be reached the service runs, is
    /// not ready, and tries again.
    ///
    /// # Errors
    /// A setting is out of range, a policy is unknown, or the cluster refuses what is asked.
    pub async fn build(mut self) -> Result<SelectionService, BuildError> {
        self.config.validate()?;
        self.options.validate()?;
        let fallback = self.catalogue.get(&self.config.fallback_policy)?;
        let factory = match self.factory.take() {
            Some(factory) => factory,
            None => self.catalogue.get(&self.config.policy)?,
        };
        let runtime = self.runtime.take().unwrap_or_else(|| DistributedRuntime::in_memory("embedded"));
        if self.config.seed == 0 {
            self.config.seed = seed_of(runtime.replica());
        }
        let subscriptions = match subscribe(&runtime).await {
            Ok(subscriptions) => Some(subscriptions),
            Err(error) if error.is_passing() => None,
            Err(error) => return Err(error),
        };
        Ok(self.start(&runtime, Policies { factory, fallback }, subscriptions))
    }

    fn start(
        self,
        runtime: &DistributedRuntime,
        policies: Policies,
        subscriptions: Option<Subscriptions>,
    ) -> SelectionService {
        let stop = CancellationToken::new();
        let tasks = runtime.tasks().child_with_token("selection", stop.clone());
        let clock = ServiceClock::start();
        let keys = KeySource { holder: ReplicaId(runtime.replica()), next: AtomicU64::new(0) };
        let factory = PartitionFactory {
            config: Arc::new(self.config),
            factory: policies.factory,
            fallback: policies.fallback,
            clock,
            keys: Arc::new(keys),
            options: self.options.clone(),
            tasks: tasks.clone(),
            stop: stop.clone(),
        };
        let ingest = IngestMetrics::default();
        let (view, views) = watch::channel(RegistryView::default());
        let latest = LatestReports::new(clock);
        let (questions, question_queue) = IndexQuestions::channel();
        let outlets =
            Outlets { metrics: ingest.clone(), view, latest: latest.clone(), questions: question_queue };
        let follower = Follower::new(factory, Arc::clone(runtime.bus()), outlets);
        let (discovery, bus) = (Arc::clone(runtime.discovery()), Arc::clone(runtime.bus()));
        let admin = Admin { discovery, bus, latest, questions };
        let runtime = runtime.clone();
        tasks.spawn("registry", OnError::ShutDown, async move {
            match subscribe_until(subscriptions, &runtime, &stop).await {
                Some(subscriptions) => follower.run(subscriptions, stop).await,
                None => Ok(()),
            }
        });
        SelectionService::new(Parts { views, admin, ingest, options: self.options, tasks })
    }
}

impl BuildError {
    /// Whether it is only that the cluster cannot be reached now.
    const fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Discovery(DiscoveryError::Unavailable { .. }) | Self::Bus(BusError::Unavailable { .. })
        )
    }
}

struct Policies {
    factory: Arc<dyn WorkerSelectionPolicyFactory>,
    fallback: Arc<dyn WorkerSelectionPolicyFactory>,
}

/// The bus before the records: an event of a worker that is known must not be missed for want of a subscription.
async fn subscribe(runtime: &DistributedRuntime) -> Result<Subscriptions, BuildError> {
    Ok(Subscriptions {
        kv_events: runtime.bus().subscribe(wire::KV_EVENTS).await?,
        loads: runtime.bus().subscribe(wire::LOADS).await?,
        records: RecordFeed::watch(&**runtime.discovery()).await?,
    })
}

/// `first`, or what is subscribed once the cluster can be reached; `None` if `stop` comes before.
async fn subscribe_until(
    first: Option<Subscriptions>,
    runtime: &DistributedRuntime,
    stop: &CancellationToken,
) -> Option<Subscriptions> {
    match first {
        Some(subscriptions) => Some(subscriptions),
        None => {
            retry_dependent("following the cluster", RetryTimes::default(), stop, || subscribe(runtime)).await
        }
    }
}

/// Another seed at every start, so that replicas do not break ties alike; never 0, which asks for one.
fn seed_of(replica: u128) -> u64 {
    let (high, low) = ((replica >> 64) as u64, replica as u64);
    (high ^ low.rotate_left(32)) | 1
}
