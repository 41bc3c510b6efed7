//! One partition's scheduler: eligibility → queue → overlap and load columns → policy → validation → booking.
//!
//! Sans-IO: the caller brings the time, the prefix index and the news; the scheduler answers. Everything is serial, so
//! policy state, queue and book need no locks. Design invariant 6: the same inputs in the same order give the same
//! decisions.

mod candidates;
mod inhibition;

use crate::{
    Answer, Constraints, FcfsQueue, Rejection, Request, RowInfo, RowReport, Selection, Verdict, Waiting,
    WaitingQueue, WorkerTable,
    book::{Book, Booked, Entry, Freed, Log, RowLoad, kept_blocks},
    eligibility::{Fleet, OverloadThresholds, eligible_rows},
    policy_host::{Choice, PolicyHealth, PolicyHost, PolicyParts},
};
use candidates::Candidates;
use inhibition::Inhibitions;
use std::sync::Arc;
use switchtower_ids::{Incarnation, ReservationKey, Row, WorkerId};
use switchtower_kv::index::{PrefixIndex, TierBlocks};
use switchtower_policy::KvRouterConfig;

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
    /// Position in the table → column in the book.
    columns: Vec<usize>,
    book: Book,
    log: Log,
    queue: Box<dyn WaitingQueue>,
    policy: PolicyHost,
    inhibitions: Inhibitions,
    candidates: Candidates,
    eligible: Vec<usize>,
    news: News,
    closed: bool,
}

/// What happened since waiters were last offered their turn: only that can let one of them go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    None,
    /// A row may have room.
    Capacity,
    /// Rows came, went or changed: a waiter may have nowhere to go any more.
    Fleet,
}

impl Scheduler {
    /// A scheduler without workers for blocks of `block_size` tokens (at least 1).
    #[must_use]
    pub fn new(block_size: u32, parts: PolicyParts) -> Self {
        let config = Arc::clone(&parts.config);
        Self {
            block_size: block_size.max(1),
            table: WorkerTable::default(),
            columns: Vec::new(),
            book: Book::default(),
            log: Log::default(),
            queue: Box::new(FcfsQueue::new(config.queue_limit_requests)),
            policy: PolicyHost::new(parts),
            inhibitions: Inhibitions::default(),
            candidates: Candidates::new(&config),
            eligible: Vec::new(),
            news: News::None,
            closed: false,
            config,
        }
    }

    /// Replaces the rows. Waiters may be able to go, or have nowhere to go: call [`dispatch`](Self::dispatch) after it.
    pub fn set_rows(&mut self, rows: Vec<RowInfo>) {
        self.table = WorkerTable::replace(rows, &self.table);
        self.book.set_lives(self.table.rows().iter().map(|info| (info.row, info.life())));
        let rows = self.table.rows().iter();
        self.columns = rows.filter_map(|info| self.book.column(info.row)).collect();
        self.news = News::Fleet;
        debug_assert_eq!(self.columns.len(), self.table.rows().len(), "every known row has a column");
    }

    /// Takes in a worker's report of one rank.
    pub fn report(&mut self, row: Row, incarnation: Incarnation, report: RowReport) {
        self.table.report(row, incarnation, report);
        self.news = self.news.max(News::Capacity);
    }

    /// Keeps requests from this life of a worker until `until_ms`, as long as other rows are eligible.
    pub fn inhibit(&mut self, worker: WorkerId, incarnation: Incarnation, until_ms: u64) {
        self.inhibitions.add(worker, incarnation, until_ms);
    }

    /// Submits a request. `None` means that it waits: its answer comes from [`dispatch`](Self::dispatch).
    pub fn submit(&mut self, now_ms: u64, request: Request, index: &PrefixIndex) -> Option<Answer> {
        let key = request.key;
        let result = self.admit(now_ms, request, index).transpose()?;
        Some(Answer { key, result })
    }

    fn admit(
        &mut self,
        now_ms: u64,
        request: Request,
        index: &PrefixIndex,
    ) -> Result<Option<Selection>, Rejection> {
        if self.closed {
            return Err(Rejection::ShuttingDown);
        }
        let deadline_ms = self.deadline_ms(&request);
        if deadline_ms <= now_ms {
            return Err(Rejection::DeadlineExceeded { waited_ms: now_ms.saturating_sub(request.arrival_ms) });
        }
        self.check_alias(&request)?;
        self.give_up_prefill(now_ms, request.key);
        if !self.queue.must_wait(&request)
            && let Some(selection) = self.try_book(now_ms, &request, index)?
        {
            return Ok(Some(selection));
        }
        let (waiting, limit) = (self.queue.len(), self.config.queue_limit_requests);
        let queued = self.queue.push(Waiting { request, deadline_ms });
        queued.map(|()| None).map_err(|_| Rejection::QueueFull { waiting, limit })
    }

    /// A request that is sent again failed where it is booked: nothing is prefilled there any more. It must not wait for
    /// room while it takes up room itself, or retries could wait for one another for ever.
    fn give_up_prefill(&mut self, now_ms: u64, key: ReservationKey) {
        if let Some(attempt) = self.book.attempt(key) {
            self.prefill_complete(now_ms, key, attempt);
        }
    }

    fn deadline_ms(&self, request: &Request) -> u64 {
        let longest = request.arrival_ms.saturating_add(self.config.queue_wait_ms_max);
        request.deadline_ms.map_or(longest, |deadline_ms| deadline_ms.min(longest))
    }

    fn check_alias(&self, request: &Request) -> Result<(), Rejection> {
        let Some(alias) = &request.alias else {
            return Ok(());
        };
        match self.book.by_alias(&alias.id) {
            Some((key, _)) if key != request.key => Err(Rejection::IdConflict(alias.id.to_string())),
            _ => Ok(()),
        }
    }

    /// Chooses a row as if `request` had been submitted, and books nothing.
    ///
    /// # Errors
    /// As the request's answer would be; never that it has to wait.
    pub fn preview(
        &mut self,
        now_ms: u64,
        request: &Request,
        index: &PrefixIndex,
    ) -> Result<Selection, Rejection> {
        if self.closed {
            return Err(Rejection::ShuttingDown);
        }
        self.find_eligible(now_ms, &request.constraints)?;
        self.select(now_ms, request, index)
    }

    /// Answers every waiter that can go, that has nowhere to go, or whose time is up.
    pub fn dispatch(&mut self, now_ms: u64, index: &PrefixIndex, answers: &mut Vec<Answer>) {
        for waiting in self.queue.expire(now_ms) {
            let waited_ms = now_ms.saturating_sub(waiting.request.arrival_ms);
            let result = Err(Rejection::DeadlineExceeded { waited_ms });
            answers.push(Answer { key: waiting.request.key, result });
        }
        if self.inhibitions.expire(now_ms) {
            self.news = self.news.max(News::Capacity);
        }
        let news = std::mem::replace(&mut self.news, News::None);
        if self.queue.is_empty() || news == News::None {
            return;
        }
        let mut queue = std::mem::replace(&mut self.queue, Box::new(FcfsQueue::new(0)));
        queue.offer(&mut |waiting| {
            if news == News::Capacity && !self.has_room() {
                return Verdict::NoRoom;
            }
            let Some(result) = self.try_book(now_ms, &waiting.request, index).transpose() else {
                return Verdict::Blocked;
            };
            answers.push(Answer { key: waiting.request.key, result });
            Verdict::Done
        });
        self.queue = queue;
    }

    /// When [`dispatch`](Self::dispatch) has to be called at the latest.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let queue = self.queue.next_deadline_ms()?;
        Some(self.inhibitions.next_end_ms().map_or(queue, |end_ms| end_ms.min(queue)))
    }

    /// `None` if all eligible rows are busy.
    fn try_book(
        &mut self,
        now_ms: u64,
        request: &Request,
        index: &PrefixIndex,
    ) -> Result<Option<Selection>, Rejection> {
        self.find_eligible(now_ms, &request.constraints)?;
        if self.all_busy() {
            return Ok(None);
        }
        let selection = self.select(now_ms, request, index)?;
        self.book_selection(now_ms, request, &selection);
        Ok(Some(selection))
    }

    fn find_eligible(&mut self, now_ms: u64, constraints: &Constraints) -> Result<(), Rejection> {
        let fleet = Fleet {
            table: &self.table,
            columns: &self.columns,
            book: &self.book,
            overload: OverloadThresholds::from(&*self.config),
        };
        eligible_rows(fleet, constraints, &mut self.eligible)?;
        self.inhibitions.narrow(now_ms, self.table.rows(), &mut self.eligible);
        Ok(())
    }

    fn all_busy(&self) -> bool {
        let Some(threshold) = self.config.queue_threshold else { return false };
        let fleet = self.fleet();
        self.eligible.iter().all(|index| fleet.is_busy(*index, threshold))
    }

    /// Whether any row at all could take a request.
    fn has_room(&self) -> bool {
        let Some(threshold) = self.config.queue_threshold else { return true };
        let fleet = self.fleet();
        (0..self.table.rows().len()).any(|index| !fleet.is_busy(index, threshold))
    }

    fn fleet(&self) -> Fleet<'_> {
        let overload = OverloadThresholds::from(&*self.config);
        Fleet { table: &self.table, columns: &self.columns, book: &self.book, overload }
    }

    /// Scores the eligible rows and picks one of them.
    fn select(
        &mut self,
        now_ms: u64,
        request: &Request,
        index: &PrefixIndex,
    ) -> Result<Selection, Rejection> {
        self.policy.prepare(now_ms);
        let kept = kept_blocks(&request.blocks);
        let context = candidates::context(request, self.block_size);
        let inputs = self.policy.required_inputs();
        let fleet = candidates::Fleet { table: &self.table, columns: &self.columns, book: &self.book, index };
        self.candidates.build(
            inputs,
            fleet,
            &candidates::Asked { request, context: &context, kept: &kept },
            &self.eligible,
        );
        let choice = self.policy.choose(now_ms, &context, &mut self.candidates.rows);
        let choice = choice.map_err(|_| self.all_filtered())?;
        self.describe(now_ms, request, choice)
    }

    fn all_filtered(&self) -> Rejection {
        let policy_filter = u32::try_from(self.eligible.len()).unwrap_or(u32::MAX);
        Rejection::NothingEligible(crate::Exclusions { policy_filter, ..crate::Exclusions::default() })
    }

    fn describe(&self, now_ms: u64, request: &Request, choice: Choice) -> Result<Selection, Rejection> {
        let row = Row::new(choice.pick.worker_id, choice.pick.dp_rank);
        let position = self.table.find(row).filter(|position| self.eligible.contains(position));
        // The host picked among rows of the table, so this does not happen; booking a foreign row would be worse.
        let Some(position) = position else {
            return Err(self.all_filtered());
        };
        let info = &self.table.rows()[position];
        let (overlap, cached_tokens) =
            self.candidates.overlap_of(info.slot, request.prompt_tokens, self.block_size);
        Ok(Selection {
            key: request.key,
            attempt: self.book.attempt(request.key).unwrap_or(0) + 1,
            row,
            incarnation: info.incarnation,
            endpoint: Arc::clone(&info.endpoint),
            prompt_tokens: request.prompt_tokens,
            cached_tokens,
            overlap,
            cost: choice.pick.cost,
            candidates: u32::try_from(self.eligible.len()).unwrap_or(u32::MAX),
            chosen_by: choice.chosen_by,
            waited_ms: now_ms.saturating_sub(request.arrival_ms),
        })
    }

    fn book_selection(&mut self, now_ms: u64, request: &Request, selection: &Selection) {
        let Some(position) = self.table.find(selection.row) else {
            return;
        };
        self.write(
            now_ms,
            Entry::Booked(Booked {
                key: request.key,
                attempt: selection.attempt,
                row: selection.row,
                life: self.table.rows()[position].life(),
                prefill_tokens: selection.prompt_tokens - selection.cached_tokens,
                blocks: kept_blocks(&request.blocks).into(),
                expected_output_tokens: request.expected_output_tokens,
                alias: request.alias.clone(),
            }),
        );
    }

    fn write(&mut self, now_ms: u64, entry: Entry) {
        let entry = self.log.append(entry);
        let applied = self.book.apply(now_ms, &entry);
        debug_assert_eq!(applied, Ok(()), "our own log has no gaps");
    }

    /// The prompt of this attempt is prefilled: capacity became free, call [`dispatch`](Self::dispatch).
    pub fn prefill_complete(&mut self, now_ms: u64, key: ReservationKey, attempt: u32) {
        self.write(now_ms, Entry::PrefillComplete { key, attempt });
        self.news = self.news.max(News::Capacity);
    }

    /// The output occupies `total_blocks` blocks by now.
    pub fn output_block(&mut self, now_ms: u64, key: ReservationKey, total_blocks: u64) {
        self.write(now_ms, Entry::OutputGrew { key, total_blocks });
    }

    /// The request is over, whether it waits or is booked. `by_caller` leaves a tombstone for its alias.
    pub fn release(&mut self, now_ms: u64, key: ReservationKey, by_caller: bool) {
        if self.book.attempt(key).is_some() {
            self.write(now_ms, Entry::Released { key, by_caller });
            self.news = self.news.max(News::Capacity);
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
        blocks: &[switchtower_ids::SequenceHash],
        index: &PrefixIndex,
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
