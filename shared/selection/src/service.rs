//! The service and the handle that front ends call.

use crate::{
    ModelStatus, PartitionLoads, Reservation, SelectionOptions, SelectionRequest,
    admin::Admin,
    detached::{Claimed, Detached, Taken},
    metrics::{DecisionMetrics, FleetMetrics, IngestMetrics, SelectionTotals, Shown},
    partition::Partition,
    registry::{RefusedRecord, RegistryView},
};
use prometheus_client::registry::Registry;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use switchtower_ids::{PartitionId, Row};
use switchtower_kv::index::TierBlocks;
use switchtower_runtime::TaskGroup;
use switchtower_scheduling::{Exclusions, Rejection, Selection, book::Freed};
use tokio::sync::watch;
use uuid::Uuid;

/// How long tasks may take to end.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// What a service is made of.
pub(crate) struct Parts {
    pub(crate) views: watch::Receiver<RegistryView>,
    pub(crate) admin: Admin,
    pub(crate) ingest: IngestMetrics,
    pub(crate) options: SelectionOptions,
    pub(crate) tasks: TaskGroup,
}

/// A running selection service. It owns its tasks, so there is one of it; [`handle`](Self::handle) is what is shared.
pub struct SelectionService {
    handle: SelectionHandle,
    tasks: TaskGroup,
}

/// Calls a [`SelectionService`]. Cheap to clone.
#[derive(Clone)]
pub struct SelectionHandle {
    pub(crate) views: watch::Receiver<RegistryView>,
    pub(crate) admin: Admin,
    /// Partitions that come later must not take what the others reject.
    closed: Arc<AtomicBool>,
    detached: Detached,
    ingest: IngestMetrics,
    decisions: DecisionMetrics,
    fleet: FleetMetrics,
}

/// A reservation that is driven by its id.
#[derive(Clone, Debug, PartialEq)]
pub struct DetachedReservation {
    /// The caller's id, or one that was made.
    pub id: Arc<str>,
    /// Where the request is booked.
    pub selection: Selection,
}

/// What came of freeing a reservation by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeOutcome {
    /// It is free now.
    Freed,
    /// It was freed within the last minute.
    AlreadyReleased,
    /// Nothing is known under this id.
    Unknown,
}

impl SelectionService {
    pub(crate) fn new(parts: Parts) -> Self {
        let detached = Detached::default();
        let (idle, views, options) = (detached.clone(), parts.views.clone(), parts.options);
        parts.tasks.spawn_until_shutdown("idle reservations", async move {
            let mut ticks = tokio::time::interval(options.tick);
            loop {
                ticks.tick().await;
                idle.end_idle(options.idle_lease);
                partitions(&views).iter().for_each(|partition| partition.expire_assumptions());
            }
        });
        let handle = SelectionHandle {
            views: parts.views,
            admin: parts.admin,
            closed: Arc::default(),
            detached,
            ingest: parts.ingest,
            decisions: DecisionMetrics::default(),
            fleet: FleetMetrics::default(),
        };
        Self { handle, tasks: parts.tasks }
    }

    /// What callers share.
    #[must_use]
    pub fn handle(&self) -> SelectionHandle {
        self.handle.clone()
    }

    /// Rejects waiters and newcomers; requests in flight go on.
    pub async fn close(&self) {
        self.handle.closed.store(true, Ordering::SeqCst);
        let partitions = self.handle.partitions();
        futures::future::join_all(partitions.iter().map(|partition| partition.scheduler.close())).await;
    }

    /// Ends the service: rejects whoever waits and stops its tasks.
    pub async fn shutdown(self) {
        // A scheduler that is stuck in its policy may have no room for the word; the token reaches it all the same.
        if tokio::time::timeout(STOP_DEADLINE, self.close()).await.is_err() {
            tracing::warn!("a scheduler did not take the word to close in time");
        }
        let late = self.tasks.shutdown(STOP_DEADLINE).await;
        if !late.is_empty() {
            tracing::warn!(tasks = ?late, "tasks of the selection service did not end in time");
        }
    }
}

fn partitions(views: &watch::Receiver<RegistryView>) -> Vec<Arc<Partition>> {
    views.borrow().partitions.values().map(|view| Arc::clone(&view.partition)).collect()
}

/// A reservation that is kept under its id.
struct Booked {
    id: Arc<str>,
    selection: Selection,
    /// Whether this call booked it.
    is_new: bool,
}

impl SelectionHandle {
    fn partitions(&self) -> Vec<Arc<Partition>> {
        partitions(&self.views)
    }

    fn partition(&self, id: &PartitionId) -> Result<Arc<Partition>, Rejection> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Rejection::ShuttingDown);
        }
        let view = self.views.borrow();
        let partition = view.partitions.get(id).map(|view| Arc::clone(&view.partition));
        partition.ok_or_else(|| Rejection::NothingEligible(Exclusions::default()))
    }

    /// Chooses a worker and books nothing.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn select(&self, request: SelectionRequest) -> Result<Selection, Rejection> {
        let request = request.checked()?;
        self.partition(&request.partition())?.select(&request).await
    }

    /// Chooses a worker and books the request on it; waits in the queue if it has to. Dropping the future leaves the
    /// queue or releases what was booked.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn select_and_reserve(&self, request: SelectionRequest) -> Result<Reservation, Rejection> {
        let id = request.partition();
        let reserved = self.reserve(request).await;
        let decision =
            reserved.as_ref().map(|reservation| reservation.selection().clone()).map_err(Clone::clone);
        self.count(&id, &decision);
        reserved
    }

    async fn reserve(&self, request: SelectionRequest) -> Result<Reservation, Rejection> {
        let request = request.checked()?;
        self.partition(&request.partition())?.reserve(&request).await
    }

    /// The model of a partition that does not exist is not a label: it may be anything.
    fn count(&self, id: &PartitionId, decision: &Result<Selection, Rejection>) {
        let known = self.views.borrow().partitions.contains_key(id);
        self.decisions.count(known.then_some(id), decision);
    }

    /// As [`select_and_reserve`](Self::select_and_reserve), for a caller that drives the reservation by its id. The same
    /// request under the same id gives the same reservation again, also while the first call is still waiting. Freeing the
    /// id while the request waits withdraws it.
    ///
    /// # Errors
    /// Why there is no worker, that the id belongs to another request, or that it was freed meanwhile.
    pub async fn reserve_detached(
        &self,
        request: SelectionRequest,
    ) -> Result<DetachedReservation, Rejection> {
        let partition = request.partition();
        let booked = self.reserve_once(request).await;
        match &booked {
            // The first call under an id is the decision; later ones repeat its answer.
            Ok(Booked { selection, is_new, .. }) if *is_new => self.count(&partition, &Ok(selection.clone())),
            Ok(_) => {}
            Err(rejection) => self.count(&partition, &Err(rejection.clone())),
        }
        booked.map(|Booked { id, selection, .. }| DetachedReservation { id, selection })
    }

    async fn reserve_once(&self, request: SelectionRequest) -> Result<Booked, Rejection> {
        let mut request = request.checked()?;
        let id = request.reservation_id.clone().unwrap_or_else(|| Uuid::now_v7().to_string().into());
        request.reservation_id = Some(Arc::clone(&id));
        let fingerprint = request.fingerprint();
        let claim = loop {
            match self.detached.claim(&id, fingerprint) {
                Claimed::Mine(claim) => break claim,
                Claimed::Same(selection) => return Ok(Booked { id, selection: *selection, is_new: false }),
                Claimed::UnderWay(ended) => ended.cancelled().await,
                Claimed::Other => return Err(Rejection::IdConflict(id.to_string())),
            }
        };
        let reservation = tokio::select! {
            biased;
            () = claim.withdrawn() => return Err(Rejection::Cancelled),
            reserved = self.reserve(request) => reserved?,
        };
        let selection = reservation.selection().clone();
        // Nothing waits between the booking and this, so no cancellation can come between them.
        if let Err(freed) = claim.keep(Box::new(reservation)) {
            freed.free();
            return Err(Rejection::Cancelled);
        }
        Ok(Booked { id, selection, is_new: true })
    }

    /// The prompt of a detached reservation is prefilled. `false` if there is no such reservation here.
    #[must_use]
    pub fn prefill_complete(&self, id: &str) -> bool {
        self.detached.with(id, Reservation::prefill_complete)
    }

    /// The output of a detached reservation occupies `total_blocks` blocks. `false` if there is none such here.
    #[must_use]
    pub fn output_block(&self, id: &str, total_blocks: u64) -> bool {
        self.detached.with(id, |reservation| reservation.output_block(total_blocks))
    }

    /// Frees a detached reservation, or withdraws its request if that still waits.
    pub async fn free(&self, id: &str) -> FreeOutcome {
        match self.detached.take(id) {
            Taken::Held(reservation) => {
                reservation.free();
                return FreeOutcome::Freed;
            }
            Taken::Withdrawn => return FreeOutcome::Freed,
            Taken::None => {}
        }
        for partition in self.partitions() {
            if partition.scheduler.freed(id).await == Freed::AlreadyReleased {
                return FreeOutcome::AlreadyReleased;
            }
        }
        FreeOutcome::Unknown
    }

    /// How much of the prompt every row of its partition has cached, in blocks by tier.
    ///
    /// # Errors
    /// Nothing serves the model.
    pub async fn overlap_scores(
        &self,
        request: SelectionRequest,
    ) -> Result<Vec<(Row, TierBlocks)>, Rejection> {
        let partition = self.partition(&request.partition())?;
        let blocks = partition.blocks(&request);
        Ok(partition.scheduler.overlap_scores(blocks).await)
    }

    /// What is booked, row by row, and who waits.
    pub async fn loads(&self) -> Vec<PartitionLoads> {
        let mut loads = Vec::new();
        for partition in self.partitions() {
            if let Some(state) = partition.scheduler.state().await {
                loads.push(PartitionLoads::new(&partition, state, &self.admin.latest));
            }
        }
        loads
    }

    /// What was chosen since the start.
    #[must_use]
    pub fn totals(&self) -> SelectionTotals {
        self.decisions.totals()
    }

    /// What is served now, from the tables that route (design invariant 7).
    #[must_use]
    pub fn models(&self) -> Vec<ModelStatus> {
        self.views.borrow().partitions.values().map(ModelStatus::from).collect()
    }

    /// Worker records that do not take part, and why.
    #[must_use]
    pub fn refused_records(&self) -> Vec<RefusedRecord> {
        self.views.borrow().refused.clone()
    }

    /// Whether a full snapshot of the registry has been seen.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.views.borrow().synced
    }

    /// Waits for the first full snapshot of the registry; returns at once if the service has ended.
    pub async fn synced(&self) {
        let mut views = self.views.clone();
        drop(views.wait_for(|view| view.synced).await);
    }

    /// Waits until `holds` of what is served; `false` if the service ends before.
    pub async fn wait_for_models(&self, mut holds: impl FnMut(&[ModelStatus]) -> bool) -> bool {
        let mut views = self.views.clone();
        let models =
            |view: &RegistryView| view.partitions.values().map(ModelStatus::from).collect::<Vec<_>>();
        views.wait_for(|view| holds(&models(view))).await.is_ok()
    }

    /// Adds the service's metrics to `registry`. Call [`refresh_metrics`](Self::refresh_metrics) before each scrape: what
    /// it found last is what every scrape shows, whole.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.ingest.register(registry);
        self.decisions.register(registry);
        self.fleet.register(registry);
    }

    /// Brings the fleet's metrics up to date. Calls that come at once go one after the other, so that none puts an older
    /// state in the place of a newer.
    pub async fn refresh_metrics(&self) {
        let refreshing = self.fleet.refreshing().await;
        let loads = self.loads().await;
        let refused = self.refused_records();
        refreshing.show(Shown::new(loads, &refused, self.cluster_health()));
    }
}
