//! One partition: its scheduler, its index, and how requests become the scheduler's own.

use crate::{
    Reservation, SelectionRequest, assumed::Assumptions, clock::ServiceClock, index::SharedIndex,
    scheduler::SchedulerHandle,
};
use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchtower_ids::{PartitionId, ReplicaId, ReservationKey, SequenceHash};
use switchtower_kv::hash::{HashSpace, block_hashes};
use switchtower_scheduling::{Alias, Rejection, Request, Selection};

/// Hands out reservation keys: this replica's life and a counter (`book rule 3`).
#[derive(Debug)]
pub(crate) struct KeySource {
    pub(crate) holder: ReplicaId,
    pub(crate) next: AtomicU64,
}

impl KeySource {
    pub(crate) fn next(&self) -> ReservationKey {
        ReservationKey { holder: self.holder, counter: self.next.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

/// What serves one (model, routing group, stage).
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    pub(crate) block_size: NonZeroU32,
    pub(crate) scheduler: SchedulerHandle,
    pub(crate) index: SharedIndex,
    pub(crate) assumptions: Assumptions,
    pub(crate) clock: ServiceClock,
    pub(crate) keys: Arc<KeySource>,
    /// How long a worker is left alone after a failed connection.
    pub(crate) inhibition: Duration,
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Partition({})", self.id)
    }
}

impl Partition {
    /// Chooses without booking.
    pub(crate) async fn select(&self, request: &SelectionRequest) -> Result<Selection, Rejection> {
        self.scheduler.preview(self.scheduling_request(request, self.keys.next())).await
    }

    /// Chooses and books. Dropping the future leaves the queue, or releases what was booked.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        request: &SelectionRequest,
    ) -> Result<Reservation, Rejection> {
        let key = self.keys.next();
        let request = self.scheduling_request(request, key);
        // The guard comes first and goes last: whatever happens to this future, its drop tells the scheduler.
        let guard = self.scheduler.guard(key)?;
        let selection = self.submit(&request).await?;
        Ok(Reservation::new(Arc::clone(self), guard, request, selection))
    }

    /// Books a request whose guard the caller holds; its blocks are assumed where it is booked.
    pub(crate) async fn submit(&self, request: &Request) -> Result<Selection, Rejection> {
        let selection = self.scheduler.submit(request.clone()).await?;
        let (row, incarnation) = (selection.row, selection.incarnation);
        self.assumptions.sent(self.clock.now_ms(), row, incarnation, &request.blocks);
        Ok(selection)
    }

    /// Ends what is assumed for too long.
    pub(crate) fn expire_assumptions(&self) {
        self.assumptions.expire(self.clock.now_ms());
    }

    /// Sequence hashes of the prompt's full blocks in this partition.
    pub(crate) fn blocks(&self, request: &SelectionRequest) -> Vec<SequenceHash> {
        let space = HashSpace::new(request.lora_name.as_deref(), request.cache_salt.as_deref());
        block_hashes(&request.tokens, self.block_size, space)
    }

    fn scheduling_request(&self, request: &SelectionRequest, key: ReservationKey) -> Request {
        let arrival_ms = self.clock.now_ms();
        let wait_ms = request.deadline.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let alias = request.reservation_id.as_ref();
        Request {
            key,
            blocks: self.blocks(request).into(),
            prompt_tokens: request.tokens.len() as u64,
            expected_output_tokens: request.expected_output_tokens,
            constraints: request.constraints.clone(),
            priority: if request.priority.is_finite() { request.priority } else { 0.0 },
            session: request.session.clone(),
            alias: alias.map(|id| Alias { id: Arc::clone(id), fingerprint: request.fingerprint() }),
            arrival_ms,
            deadline_ms: wait_ms.map(|wait_ms| arrival_ms.saturating_add(wait_ms)),
        }
    }
}
