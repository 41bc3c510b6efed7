//! One request's choice: eligible rows → signals → policy → validation → booking.

use super::{Scheduler, candidates};
use crate::{
    Constraints, Exclusions, OverlapIndex, Rejection, Request, Selection,
    book::{Booked, Entry, KeptBlock, keep_blocks},
    eligibility::{OverloadThresholds, eligible_rows},
    policy_host::Choice,
};
use std::sync::Arc;
use switchtower_ids::Row;

/// A request with what is derived from it once.
#[derive(Clone, Copy)]
struct Asked<'a> {
    request: &'a Request,
    kept: &'a [KeptBlock],
    index: &'a dyn OverlapIndex,
}

impl Scheduler {
    /// Chooses a row as if `request` had been submitted, and books nothing.
    ///
    /// # Errors
    /// As the request's answer would be; never that it has to wait.
    pub fn preview(
        &mut self,
        now_ms: u64,
        request: &Request,
        index: &dyn OverlapIndex,
    ) -> Result<Selection, Rejection> {
        if self.closed {
            return Err(Rejection::ShuttingDown);
        }
        if !request.constraints.are_sorted() {
            let mut sorted = request.clone();
            sorted.constraints.sort();
            return self.preview(now_ms, &sorted, index);
        }
        self.find_eligible(now_ms, &request.constraints)?;
        self.with_kept(request, |scheduler, kept| scheduler.select(now_ms, Asked { request, kept, index }))
    }

    /// Books the request on the row that the policy chooses; `None` if all eligible rows are busy.
    pub(super) fn try_book(
        &mut self,
        now_ms: u64,
        request: &Request,
        index: &dyn OverlapIndex,
    ) -> Result<Option<Selection>, Rejection> {
        self.check_alias(request)?;
        self.find_eligible(now_ms, &request.constraints)?;
        if self.all_busy() {
            return Ok(None);
        }
        self.with_kept(request, |scheduler, kept| {
            let selection = scheduler.select(now_ms, Asked { request, kept, index })?;
            scheduler.book_selection(now_ms, request, kept, &selection);
            Ok(Some(selection))
        })
    }

    /// Calls `then` with the request's kept blocks, in a buffer that is used again.
    fn with_kept<T>(&mut self, request: &Request, then: impl FnOnce(&mut Self, &[KeptBlock]) -> T) -> T {
        let mut kept = std::mem::take(&mut self.kept);
        keep_blocks(&request.blocks, &mut kept);
        let result = then(self, &kept);
        self.kept = kept;
        result
    }

    fn find_eligible(&mut self, now_ms: u64, constraints: &Constraints) -> Result<(), Rejection> {
        self.forget_stale_reports(now_ms);
        if constraints.are_open() && self.excludes_nobody() {
            self.eligible.set_all(self.table.rows().len());
            return Ok(());
        }
        let mut eligible = std::mem::take(&mut self.eligible);
        let result = eligible_rows(self.fleet(), constraints, eligible.list());
        self.inhibitions.narrow(now_ms, self.table.rows(), eligible.list());
        self.eligible = eligible;
        result
    }

    /// Whether no row is excluded but by a request's own constraints. An empty table has a rejection to explain.
    fn excludes_nobody(&self) -> bool {
        let has_thresholds = OverloadThresholds::from(&*self.config) != OverloadThresholds::default();
        !has_thresholds && !self.any_draining && self.inhibitions.is_empty() && !self.table.rows().is_empty()
    }

    fn all_busy(&self) -> bool {
        let Some(threshold) = self.config.queue_threshold else { return false };
        let fleet = self.fleet();
        self.eligible.positions().iter().all(|index| fleet.is_busy(*index, threshold))
    }

    /// Scores the eligible rows and picks one of them.
    fn select(&mut self, now_ms: u64, asked: Asked<'_>) -> Result<Selection, Rejection> {
        let Asked { request, kept, index } = asked;
        self.policy.prepare(now_ms);
        let context = candidates::context(request, self.block_size);
        let fleet = candidates::Fleet { table: &self.table, columns: &self.columns, book: &self.book, index };
        self.candidates.build(
            self.policy.required_inputs(),
            fleet,
            &candidates::Asked { request, context: &context, kept },
            &self.eligible,
        );
        let rows = self.candidates.columns(&self.columns, &self.eligible);
        let choice = self.policy.choose(now_ms, &context, &rows);
        let choice = choice.map_err(|_| self.all_filtered())?;
        self.describe(now_ms, request, choice)
    }

    fn all_filtered(&self) -> Rejection {
        let policy_filter = u32::try_from(self.eligible.len()).unwrap_or(u32::MAX);
        Rejection::NothingEligible(Exclusions { policy_filter, ..Exclusions::default() })
    }

    fn describe(&self, now_ms: u64, request: &Request, choice: Choice) -> Result<Selection, Rejection> {
        let row = Row::new(choice.pick.worker_id, choice.pick.dp_rank);
        let position = self.eligible.positions().get(choice.pick.row).copied();
        let found = position.and_then(|position| Some((position, self.table.rows().get(position)?)));
        // The host picked among rows of the table, so this does not happen; booking a foreign row would be worse.
        let Some((position, info)) = found.filter(|(_, info)| info.row == row) else {
            return Err(self.all_filtered());
        };
        let (overlap, cached_tokens) =
            self.candidates.overlap_at(position, &self.columns, request.prompt_tokens, self.block_size);
        Ok(Selection {
            key: request.key,
            attempt: self.book.attempt(request.key).unwrap_or(0).saturating_add(1),
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

    fn book_selection(&mut self, now_ms: u64, request: &Request, kept: &[KeptBlock], selection: &Selection) {
        let Some(position) = self.table.find(selection.row) else {
            return;
        };
        if let Some(left) = self.book.row(request.key) {
            self.news.row(left);
        }
        self.write(
            now_ms,
            Entry::Booked(Booked {
                key: request.key,
                attempt: selection.attempt,
                row: selection.row,
                life: self.table.rows()[position].life(),
                prefill_tokens: selection.prompt_tokens.saturating_sub(selection.cached_tokens),
                blocks: kept.into(),
                expected_output_tokens: request.expected_output_tokens,
                alias: request.alias.clone(),
            }),
        );
    }
}
