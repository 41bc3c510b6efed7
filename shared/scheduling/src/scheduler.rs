//! One partition's scheduler: eligibility → queue → overlap and load columns → policy → validation → booking.
//!
//! Sans-IO: the caller brings the time, the prefix index and the news; the scheduler answers. Everything is serial, so
//! policy state, queue and book need no locks. Design invariant 6: the same inputs in the same order give the same
//! decisions.

mod admission;
mod candidates;
mod choice;
mod eligible;
mod fleet_columns;
mod inhibition;
mod news;

use crate::{
    Answer, FcfsQueue, Rejection, RowInfo, RowReport, WaitingQueue, WorkerTable,
    book::{Book, Entry, Freed, KeptBlock, Log, RowLoad},
    policy_host::{PolicyHealth, PolicyHost, PolicyParts},
};
use candidates::Candidates;
use eligible::Eligible;
use fleet_columns::FleetColumns;
use inhibition::Inhibitions;
use news::News;
use std::sync::Arc;
use switchtower_ids::{Incarnation, ReservationKey, Row, SequenceHash, WorkerId};
use switchtower_kv::index::{Overlap, PrefixIndex, TierBlocks};
use switchtower_policy::KvRouterConfig;

/// Where a prompt's cached blocks are looked up. Called once per choice and before the policy runs, so that whoever locks
/// an index for it need not hold the lock while a policy takes its time.
pub trait OverlapIndex {
    /// Writes into `overlap` what each row holds of a prompt with these sequence hashes.
    fn overlap(&self, blocks: &[SequenceHash], overlap: &mut Overlap);
}

impl OverlapIndex for PrefixIndex {
    fn overlap(&self, blocks: &[SequenceHash], overlap: &mut Overlap) {
        Self::overlap(self, blocks, overlap);
    }
}

/// What is booked on a row, for people to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowState {
    /// The row.
    pub info: RowInfo,
    /// Its load by the book.
    pub load: RowLoad,
    /// Its worker's last report; none is unknown.
    pub report: Option<RowReport>,
}

/// The scheduler of one partition and stage.
pub struct Scheduler {
    config: Arc<KvRouterConfig>,
    block_size: u32,
    table: WorkerTable,
    columns: FleetColumns,
    /// Whether any row takes no new requests, whatever they ask for.
    any_draining: bool,
    book: Book,
    log: Log,
    queue: Box<dyn WaitingQueue>,
    policy: PolicyHost,
    inhibitions: Inhibitions,
    candidates: Candidates,
    eligible: Eligible,
    /// Of the request at hand.
    kept: Vec<KeptBlock>,
    news: News,
    closed: bool,
}

impl Scheduler {
    /// A scheduler without workers for blocks of `block_size` tokens (at least 1).
    #[must_use]
    pub fn new(block_size: u32, parts: PolicyParts) -> Self {
        let config = Arc::clone(&parts.config);
        Self {
            block_size: block_size.max(1),
            table: WorkerTable::default(),
            columns: FleetColumns::default(),
            any_draining: false,
            book: Book::default(),
            log: Log::default(),
            queue: Box::new(FcfsQueue::new(config.queue_limit_requests)),
            policy: PolicyHost::new(parts),
            inhibitions: Inhibitions::default(),
            candidates: Candidates::new(&config),
            eligible: Eligible::default(),
            kept: Vec::new(),
            news: News::default(),
            closed: false,
            config,
        }
    }

    /// Replaces the rows. Waiters may be able to go, or have nowhere to go: call [`dispatch`](Self::dispatch) after it.
    pub fn set_rows(&mut self, rows: Vec<RowInfo>) {
        self.table = WorkerTable::replace(rows, &self.table);
        self.book.set_lives(self.table.rows().iter().map(|info| (info.row, info.life())));
        self.columns = FleetColumns::of(&self.table, &self.book);
        self.any_draining = self.table.rows().iter().any(|info| info.draining);
        self.news.anything();
    }

    /// Takes in a worker's report of one rank, which counts for [`WorkerTable::REPORT_LIFE_MS`].
    pub fn report(&mut self, now_ms: u64, row: Row, incarnation: Incarnation, report: RowReport) {
        self.table.report(now_ms, row, incarnation, report);
        self.may_have_room(Some(row));
    }

    /// Keeps requests from this life of a worker until `until_ms`, as long as other rows are eligible. If nobody else is
    /// left by that, those that waited for somebody else may go: call [`dispatch`](Self::dispatch).
    pub fn inhibit(&mut self, worker: WorkerId, incarnation: Incarnation, until_ms: u64) {
        self.inhibitions.add(worker, incarnation, until_ms);
        self.news.anything();
    }

    /// Notes news of a row for those who wait; without any, a newcomer sees for itself.
    fn may_have_room(&mut self, row: Option<Row>) {
        if let Some(row) = row.filter(|_| !self.queue.is_empty()) {
            self.news.row(row);
        }
    }

    fn write(&mut self, now_ms: u64, entry: Entry) {
        let entry = self.log.append(entry);
        let applied = self.book.apply(now_ms, &entry);
        debug_assert!(applied.is_ok(), "our own log has no gaps: {applied:?}");
        for column in applied.unwrap_or_default().iter() {
            self.columns.refresh(&self.book, column);
        }
    }

    /// The prompt of this attempt is prefilled: capacity became free, call [`dispatch`](Self::dispatch).
    pub fn prefill_complete(&mut self, now_ms: u64, key: ReservationKey, attempt: u32) {
        self.write(now_ms, Entry::PrefillComplete { key, attempt });
        self.may_have_room(self.book.row(key));
    }

    /// The output occupies `total_blocks` blocks by now.
    pub fn output_block(&mut self, now_ms: u64, key: ReservationKey, total_blocks: u64) {
        self.write(now_ms, Entry::OutputGrew { key, total_blocks });
    }

    /// The request is over, whether it waits or is booked. `by_caller` leaves a tombstone for its alias.
    pub fn release(&mut self, now_ms: u64, key: ReservationKey, by_caller: bool) {
        if let Some(row) = self.book.row(key) {
            self.write(now_ms, Entry::Released { key, by_caller });
            self.may_have_room(Some(row));
        }
        // A request that failed on one worker can wait for another while its first attempt is still booked.
        self.queue.remove(key);
    }

    /// Rejects all waiters and every request that comes from now on.
    pub fn close(&mut self, answers: &mut Vec<Answer>) {
        self.closed = true;
        let waiters = self.queue.drain().into_iter();
        answers.extend(
            waiters.map(|waiting| Answer { key: waiting.request.key, result: Err(Rejection::ShuttingDown) }),
        );
    }

    /// Every row with its load, in order.
    #[must_use]
    pub fn row_states(&self) -> Vec<RowState> {
        let rows = self.table.rows().iter().enumerate();
        rows.map(|(index, info)| RowState {
            info: info.clone(),
            load: self.book.load(info.row),
            report: self.table.last_report(index),
        })
        .collect()
    }

    /// The prompt's cached blocks on every row, in table order.
    pub fn overlap_scores(
        &mut self,
        blocks: &[SequenceHash],
        index: &dyn OverlapIndex,
    ) -> Vec<(Row, TierBlocks)> {
        self.candidates.query(index, blocks);
        let rows = self.table.rows().iter();
        rows.map(|info| (info.row, self.candidates.tiers(info.slot))).collect()
    }

    /// The live reservation that a caller knows under this alias, with its fingerprint.
    #[must_use]
    pub fn by_alias(&self, id: &str) -> Option<(ReservationKey, u64)> {
        self.book.by_alias(id)
    }

    /// What freeing `id` at `now_ms` would find.
    #[must_use]
    pub fn freed(&self, now_ms: u64, id: &str) -> Freed {
        self.book.freed(now_ms, id)
    }

    /// Live reservations.
    #[must_use]
    pub fn reservations(&self) -> usize {
        self.book.len()
    }

    /// Waiting requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// What is known about the policy's failures.
    #[must_use]
    pub const fn policy_health(&self) -> &PolicyHealth {
        self.policy.health()
    }
}

#[cfg(test)]
mod tests;
