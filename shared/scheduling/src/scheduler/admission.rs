//! Who may go at once, who waits, and who goes next.

use super::{News, Scheduler};
use crate::{
    Answer, FcfsQueue, OverlapIndex, Rejection, Request, Selection, Verdict, Waiting,
    eligibility::{Fleet, OverloadThresholds},
};
use switchtower_ids::{ReservationKey, Row};

impl Scheduler {
    /// Submits a request. `None` means that it waits: its answer comes from [`dispatch`](Self::dispatch). One that waits
    /// already under the same key is replaced, and gets no answer of its own.
    pub fn submit(&mut self, now_ms: u64, mut request: Request, index: &dyn OverlapIndex) -> Option<Answer> {
        let key = request.key;
        request.constraints.sort();
        let result = self.admit(now_ms, request, index).transpose()?;
        Some(Answer { key, result })
    }

    fn admit(
        &mut self,
        now_ms: u64,
        request: Request,
        index: &dyn OverlapIndex,
    ) -> Result<Option<Selection>, Rejection> {
        // Whoever sends a request again has given up on the former answer. Two of one key would book twice.
        self.queue.remove(request.key);
        if self.closed {
            return Err(Rejection::ShuttingDown);
        }
        self.check_alias(&request)?;
        self.give_up_prefill(now_ms, request.key);
        if !self.queue.must_wait(&request)
            && let Some(selection) = self.try_book(now_ms, &request, index)?
        {
            return Ok(Some(selection));
        }
        self.wait(now_ms, request)
    }

    fn wait(&mut self, now_ms: u64, request: Request) -> Result<Option<Selection>, Rejection> {
        let longest = request.arrival_ms.saturating_add(self.config.queue_wait_ms_max);
        let deadline_ms = request.deadline_ms.map_or(longest, |deadline_ms| deadline_ms.min(longest));
        if deadline_ms <= now_ms {
            return Err(Rejection::DeadlineExceeded { waited_ms: now_ms.saturating_sub(request.arrival_ms) });
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

    /// The name must be free when the request comes and when it is booked: two of one name may wait.
    pub(super) fn check_alias(&self, request: &Request) -> Result<(), Rejection> {
        let Some(alias) = &request.alias else {
            return Ok(());
        };
        match self.book.by_alias(&alias.id) {
            Some((key, _)) if key != request.key => Err(Rejection::IdConflict(alias.id.to_string())),
            _ => Ok(()),
        }
    }

    /// Answers every waiter that can go, that has nowhere to go, or whose time is up.
    pub fn dispatch(&mut self, now_ms: u64, index: &dyn OverlapIndex, answers: &mut Vec<Answer>) {
        for waiting in self.queue.expire(now_ms) {
            let waited_ms = now_ms.saturating_sub(waiting.request.arrival_ms);
            let result = Err(Rejection::DeadlineExceeded { waited_ms });
            answers.push(Answer { key: waiting.request.key, result });
        }
        if self.inhibitions.expire(now_ms) {
            self.news.anything();
        }
        self.forget_stale_reports(now_ms);
        // A retry that is booked makes room where it was booked before: that is news again.
        loop {
            let mut news = self.news.take();
            if news == News::None || self.queue.is_empty() {
                return;
            }
            // Whoever is left alone counts as soon as nobody else is left, which news of other rows may bring about.
            if !self.inhibitions.is_empty() {
                news.anything();
            }
            self.offer(now_ms, index, &news, answers);
        }
    }

    /// One round: every waiter that the news may concern gets its turn.
    fn offer(&mut self, now_ms: u64, index: &dyn OverlapIndex, news: &News, answers: &mut Vec<Answer>) {
        let mut queue = std::mem::replace(&mut self.queue, Box::new(FcfsQueue::new(0)));
        queue.offer(&mut |waiting| {
            if !self.has_room(news) {
                return Verdict::NoRoom;
            }
            if !self.concerns(news, &waiting.request) {
                return Verdict::Blocked;
            }
            let Some(result) = self.try_book(now_ms, &waiting.request, index).transpose() else {
                return Verdict::Blocked;
            };
            answers.push(Answer { key: waiting.request.key, result });
            Verdict::Done
        });
        self.queue = queue;
    }

    /// Whether any row of the news could take a request.
    fn has_room(&self, news: &News) -> bool {
        match news {
            News::None => false,
            News::Rows(rows) => rows.iter().any(|row| self.is_free(*row, |_, _| true)),
            News::Anything => true,
        }
    }

    /// Whether any row of the news could take `request`.
    fn concerns(&self, news: &News, request: &Request) -> bool {
        match news {
            News::None => false,
            News::Rows(rows) => {
                let accepts = |fleet: &Fleet<'_>, position| fleet.accepts(&request.constraints, position);
                rows.iter().any(|row| self.is_free(*row, accepts))
            }
            News::Anything => true,
        }
    }

    fn is_free(&self, row: Row, accepts: impl Fn(&Fleet<'_>, usize) -> bool) -> bool {
        let Some(position) = self.table.find(row) else { return false };
        let fleet = self.fleet();
        let busy = self.config.queue_threshold.is_some_and(|threshold| fleet.is_busy(position, threshold));
        !busy && accepts(&fleet, position)
    }

    pub(super) fn fleet(&self) -> Fleet<'_> {
        let overload = OverloadThresholds::from(&*self.config);
        Fleet { table: &self.table, columns: self.columns.columns(), book: &self.book, overload }
    }

    /// A row whose worker does not report any more is not overloaded by what it last said.
    pub(super) fn forget_stale_reports(&mut self, now_ms: u64) {
        for row in self.table.forget_stale_reports(now_ms) {
            self.may_have_room(Some(row));
        }
    }

    /// When [`dispatch`](Self::dispatch) has to be called at the latest, while anybody waits.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let queue = self.queue.next_deadline_ms()?;
        let others = [self.inhibitions.next_end_ms(), self.table.next_stale_ms()];
        Some(others.into_iter().flatten().fold(queue, u64::min))
    }

    /// Whether [`dispatch`](Self::dispatch) would do anything at `now_ms`.
    #[must_use]
    pub fn needs_dispatch(&self, now_ms: u64) -> bool {
        let is_due = |end_ms: Option<u64>| end_ms.is_some_and(|end_ms| end_ms <= now_ms);
        let waiting = !self.queue.is_empty();
        is_due(self.inhibitions.next_end_ms())
            || waiting && (self.news != News::None || is_due(self.next_deadline_ms()))
    }
}
