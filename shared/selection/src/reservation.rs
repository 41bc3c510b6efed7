//! A live reservation: the guard, and the news of the request's life that its holder brings.

use crate::partition::Partition;
use std::sync::Arc;
use switchtower_scheduling::{Rejection, Request, ReservationGuard, Selection};

/// Why a request has to go to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerFailure {
    /// The connection could not be made: the worker is left alone by everybody for some seconds.
    Connect,
    /// The worker refused the request (another life, draining, overloaded).
    Refused,
    /// The worker failed before its first byte.
    Failed,
}

/// One booked request. Dropping it releases the booking, exactly once.
#[derive(Debug)]
#[must_use = "dropping a reservation releases it"]
pub struct Reservation {
    guard: ReservationGuard,
    partition: Arc<Partition>,
    request: Request,
    selection: Selection,
    prefill: Prefill,
    /// Blocks that the output occupies.
    output_blocks: u64,
    /// How many of them the scheduler knows of.
    told_blocks: u64,
}

/// Whether the scheduler knows that the prompt is prefilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prefill {
    Running,
    /// Complete, but the scheduler had no room for the news.
    Untold,
    Told,
}

impl Reservation {
    pub(crate) fn new(
        partition: Arc<Partition>,
        guard: ReservationGuard,
        request: Request,
        selection: Selection,
    ) -> Self {
        let prefill = Prefill::Running;
        Self { guard, partition, request, selection, prefill, output_blocks: 0, told_blocks: 0 }
    }

    /// Where the request is booked.
    #[must_use]
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The prompt is prefilled: the first token is there. Never waits; saying it again changes nothing.
    pub fn prefill_complete(&mut self) {
        if self.prefill == Prefill::Running {
            self.prefill = Prefill::Untold;
            self.tell();
        }
    }

    /// The output has `total` tokens by now. Never waits; a lower total changes nothing.
    pub fn output_tokens(&mut self, total: u64) {
        let block_size = u64::from(self.partition.block_size.get());
        // The first output tokens share a block with what the prompt has beyond its full blocks.
        let tokens = total.saturating_add(self.selection.prompt_tokens % block_size);
        self.output_block(tokens.div_ceil(block_size));
    }

    /// The output occupies `total` blocks beyond the prompt's full ones. Never waits; a lower total changes nothing.
    pub fn output_block(&mut self, total: u64) {
        if total > self.output_blocks {
            self.output_blocks = total;
            self.tell();
        }
    }

    /// Brings the scheduler what it does not know yet; what finds no room now goes with the next call.
    fn tell(&mut self) {
        let (scheduler, key) = (&self.partition.scheduler, self.guard.key());
        if self.prefill == Prefill::Untold && scheduler.prefill_complete(key, self.selection.attempt) {
            self.prefill = Prefill::Told;
        }
        if self.output_blocks > self.told_blocks && scheduler.output_block(key, self.output_blocks) {
            self.told_blocks = self.output_blocks;
        }
    }

    /// Books the next attempt on another worker, under the same key. The failed worker's booking ends when the next
    /// one begins, or with the reservation. If the future is dropped, the reservation lives on, booked here or there, and
    /// [`selection`](Self::selection) does not know: retry again, or drop it.
    ///
    /// # Errors
    /// There is no other worker; the reservation stays where it was.
    pub async fn retry_elsewhere(&mut self, failure: WorkerFailure) -> Result<&Selection, Rejection> {
        let (worker, incarnation) = (self.selection.row.worker, self.selection.incarnation);
        if failure == WorkerFailure::Connect {
            self.partition.scheduler.inhibit(worker, incarnation, self.partition.inhibition);
        }
        let failed = &mut self.request.constraints.failed;
        if !failed.contains(&(worker, incarnation)) {
            failed.push((worker, incarnation));
        }
        self.selection = self.partition.submit(&self.request).await?;
        self.prefill = Prefill::Running;
        self.output_blocks = 0;
        self.told_blocks = 0;
        Ok(&self.selection)
    }

    /// Releases because the caller asked for it.
    pub fn free(self) {
        self.guard.free();
    }
}
