//! Asks a worker for what one row's log lacks: a page of events, or its state, which may come in many chunks.
//!
//! One call is one repair. Nothing of a snapshot is used before all of it is there, so a row's state is replaced at once or
//! not at all. Whatever the worker answers, a call ends in bounded time and memory. Started by the follower.

use super::repair::{Repair, RepairAnswer};
use crate::wire::{
    RangeReply, RangeRequest, RangeWanted, Refusal, SnapshotChunk, WireError, decode, encode, range_subject,
};
use std::{sync::Arc, time::Duration};
use switchtower_cluster::{BusError, EventBus};
use switchtower_kv::event::{Snapshot, SnapshotRun};
use tokio::{sync::Semaphore, time::timeout};

/// Snapshots that are put together from chunks at the same time: each may take much memory.
const SNAPSHOTS_AT_ONCE: usize = 4;

/// Most blocks of one snapshot: more than a publisher of ours follows, in two tiers.
const SNAPSHOT_BLOCKS_MAX: usize = 1 << 23;

/// A repair may take so many times what one answer may, however many chunks there are.
const DEADLINES_MAX: u32 = 12;

/// How often a snapshot is begun anew because its worker no longer keeps it.
const STARTS_MAX: usize = 3;

/// What one repair may take.
#[derive(Clone, Debug)]
pub(super) struct PullLimits {
    /// For one answer.
    deadline: Duration,
    snapshots: Arc<Semaphore>,
}

impl PullLimits {
    pub(super) fn new(deadline: Duration) -> Self {
        Self { deadline, snapshots: Arc::new(Semaphore::new(SNAPSHOTS_AT_ONCE)) }
    }
}

/// Why a repair brought nothing.
#[derive(Debug, thiserror::Error)]
enum PullError {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error("the state was not there after {0:?}")]
    TooSlow(Duration),
}

/// Why a chunk cannot be the next one of its snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error("it was asked for chunk {wanted}, and the answer is chunk {got} or of another snapshot")]
    Other { wanted: u32, got: u32 },
    #[error("chunk {0} of several is empty")]
    Empty(u32),
    #[error("the snapshot has more than {SNAPSHOT_BLOCKS_MAX} blocks")]
    TooLarge,
    #[error("the answer is neither what was asked for nor a refusal")]
    NotAsked,
}

/// Asks, and waits for all of the answer; `None` if there is none that is of use.
pub(super) async fn pull(bus: &dyn EventBus, repair: Repair, limits: PullLimits) -> Option<RepairAnswer> {
    let all = limits.deadline.saturating_mul(DEADLINES_MAX);
    let pulled = timeout(all, Pull { bus, repair, limits: &limits }.answer()).await;
    match pulled.unwrap_or(Err(PullError::TooSlow(all))) {
        Ok(answer) => Some(answer),
        Err(error @ (PullError::Bus(_) | PullError::Refused(Refusal::SnapshotGone))) => {
            tracing::debug!(row = %repair.row, %error, "no answer to a repair");
            None
        }
        Err(error) => {
            tracing::warn!(row = %repair.row, %error, "the answer to a repair is refused");
            None
        }
    }
}

struct Pull<'a> {
    bus: &'a dyn EventBus,
    repair: Repair,
    limits: &'a PullLimits,
}

impl Pull<'_> {
    async fn answer(&self) -> Result<RepairAnswer, PullError> {
        let mut starts = 1;
        loop {
            let ended = match self.ask(self.wanted()).await? {
                RangeReply::Events { events, last } => return Ok(RepairAnswer::Events { events, last }),
                RangeReply::Snapshot(first) => self.snapshot(first).await,
                RangeReply::Refused(refusal) => return Err(refusal.into()),
            };
            match ended {
                Err(PullError::Refused(Refusal::SnapshotGone)) if starts < STARTS_MAX => starts += 1,
                ended => return ended.map(RepairAnswer::Snapshot),
            }
        }
    }

    fn wanted(&self) -> RangeWanted {
        match self.repair.from {
            0 => RangeWanted::State { after: self.repair.applied },
            from => RangeWanted::Events { from },
        }
    }

    async fn snapshot(&self, first: SnapshotChunk) -> Result<Snapshot, PullError> {
        let mut assembly = Assembly::begin(first)?;
        if assembly.wanted().is_none() {
            return Ok(assembly.finish());
        }
        // It is never closed; without a permit there would only be no bound.
        let _permit = self.limits.snapshots.acquire().await.ok();
        while let Some(wanted) = assembly.wanted() {
            match self.ask(wanted).await? {
                RangeReply::Snapshot(chunk) => assembly.add(chunk)?,
                RangeReply::Refused(refusal) => return Err(refusal.into()),
                RangeReply::Events { .. } => return Err(Unfit::NotAsked.into()),
            }
        }
        Ok(assembly.finish())
    }

    async fn ask(&self, wanted: RangeWanted) -> Result<RangeReply, PullError> {
        let Repair { row, incarnation, .. } = self.repair;
        let subject = range_subject(row.worker, incarnation);
        let question = encode(&RangeRequest { rank: row.rank, wanted });
        let answer = self.bus.request(&subject, question, self.limits.deadline).await?;
        Ok(decode(&answer)?)
    }
}

/// A snapshot of which some chunks are there.
#[derive(Debug)]
pub(super) struct Assembly {
    snapshot: u64,
    chunks: u32,
    next: u32,
    seq: u64,
    runs: Vec<SnapshotRun>,
    blocks: usize,
}

impl Assembly {
    /// Begins with chunk 0.
    pub(super) fn begin(first: SnapshotChunk) -> Result<Self, Unfit> {
        let SnapshotChunk { snapshot, chunks, seq, .. } = first;
        let mut assembly = Self { snapshot, chunks, next: 0, seq, runs: Vec::new(), blocks: 0 };
        assembly.add(first)?;
        Ok(assembly)
    }

    /// Adds the next chunk.
    pub(super) fn add(&mut self, chunk: SnapshotChunk) -> Result<(), Unfit> {
        let expected = (self.snapshot, self.chunks, self.seq, self.next);
        if (chunk.snapshot, chunk.chunks, chunk.seq, chunk.index) != expected {
            return Err(Unfit::Other { wanted: self.next, got: chunk.index });
        }
        let blocks: usize = chunk.runs.iter().map(|run| run.blocks.len()).sum();
        if blocks == 0 && self.chunks > 1 {
            return Err(Unfit::Empty(chunk.index));
        }
        self.blocks += blocks;
        if self.blocks > SNAPSHOT_BLOCKS_MAX {
            return Err(Unfit::TooLarge);
        }
        self.runs.extend(chunk.runs);
        self.next += 1;
        Ok(())
    }

    /// The question for the next chunk; `None` when all are there.
    pub(super) fn wanted(&self) -> Option<RangeWanted> {
        let missing = self.next < self.chunks;
        missing.then_some(RangeWanted::Chunk { snapshot: self.snapshot, index: self.next })
    }

    /// The snapshot, once nothing is wanted any more.
    pub(super) fn finish(self) -> Snapshot {
        Snapshot { seq: self.seq, blocks: self.runs }
    }
}

#[cfg(test)]
mod tests;
