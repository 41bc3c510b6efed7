//! The router as it serves traffic: prefix index, a cursor per row, one partition's scheduler. The service's actor does the
//! same in the same order; here the time is a parameter. Called by `simulation`.

use crate::{fleet::FIRST_LIFE, trace::TraceRequest};
use std::sync::Arc;
use switchtower_ids::{ReplicaId, ReservationKey};
use switchtower_kv::{
    cursor::Cursor,
    event::EventBatch,
    index::{IndexLimits, PrefixIndex, RowSlot},
};
use switchtower_scheduling::{
    Answer, Constraints, Request, RowInfo, Scheduler,
    policy_host::{Clock, PolicyHealth, PolicyParts},
};

use crate::engine_node::Progress;

/// The only replica.
const REPLICA: ReplicaId = ReplicaId(1);

/// The attempt of every booking: nobody retries.
const ATTEMPT: u32 = 1;

/// In virtual time a policy takes none.
struct Still;

impl Clock for Still {
    fn now_us(&self) -> u64 {
        0
    }
}

/// The clock that a policy host is given here.
pub(crate) fn still_clock() -> Box<dyn Clock> {
    Box::new(Still)
}

/// See the [module](self).
pub(crate) struct Router {
    scheduler: Scheduler,
    index: PrefixIndex,
    cursors: Vec<Cursor>,
    /// Answers that nobody has taken yet.
    answers: Vec<Answer>,
}

fn key(number: usize) -> ReservationKey {
    ReservationKey { holder: REPLICA, counter: number as u64 + 1 }
}

impl Router {
    pub(crate) fn new(block_size: u32, rows: Vec<RowInfo>, parts: PolicyParts) -> Self {
        let mut scheduler = Scheduler::new(block_size, parts);
        let mut cursors = vec![Cursor::new(); rows.len()];
        for cursor in &mut cursors {
            cursor.begin(FIRST_LIFE);
        }
        scheduler.set_rows(rows);
        Self { scheduler, index: PrefixIndex::new(IndexLimits::default()), cursors, answers: Vec::new() }
    }

    /// A request of the trace arrives.
    pub(crate) fn submit(&mut self, now_us: u64, number: usize, request: &TraceRequest) {
        let request = Request {
            key: key(number),
            blocks: Arc::clone(&request.blocks),
            prompt_tokens: request.prompt_tokens.into(),
            // A trace knows the length of the output; a client does not.
            expected_output_tokens: None,
            constraints: Constraints::default(),
            priority: 0.0,
            session: None,
            alias: None,
            arrival_ms: now_us / 1_000,
            deadline_ms: None,
        };
        let answer = self.scheduler.submit(now_us / 1_000, request, &self.index);
        self.answers.extend(answer);
        self.dispatch(now_us);
    }

    /// An engine tells something of a request.
    pub(crate) fn hear(&mut self, now_us: u64, number: usize, progress: Progress) {
        let (now_ms, key) = (now_us / 1_000, key(number));
        match progress {
            Progress::FirstToken { .. } => self.scheduler.prefill_complete(now_ms, key, ATTEMPT),
            Progress::OutputGrew { blocks } => self.scheduler.output_block(now_ms, key, blocks.into()),
            Progress::Finished | Progress::Refused => self.scheduler.release(now_ms, key, false),
        }
        self.dispatch(now_us);
    }

    /// More of the log of the row at `place`. Links lose nothing and keep the order, so there is no gap to repair.
    pub(crate) fn apply(&mut self, place: u32, batch: EventBatch) {
        let Some(cursor) = self.cursors.get_mut(place as usize) else {
            return;
        };
        let mut ready = Vec::new();
        for event in batch.events {
            cursor.offer(batch.incarnation, event, &mut ready);
        }
        debug_assert_eq!(cursor.gap(), None, "links keep the order");
        for event in ready {
            // What the index refuses it counts.
            let _ = self.index.apply(RowSlot(place), &event.event);
        }
    }

    /// Lets waiters go that can, and those whose time is up.
    pub(crate) fn dispatch(&mut self, now_us: u64) {
        self.scheduler.dispatch(now_us / 1_000, &self.index, &mut self.answers);
    }

    /// When [`dispatch`](Self::dispatch) has to be called at the latest.
    pub(crate) fn next_deadline_us(&self) -> Option<u64> {
        Some(self.scheduler.next_deadline_ms()?.saturating_mul(1_000))
    }

    /// Answers since the last call, each with the request's number in the trace.
    pub(crate) fn answers(&mut self) -> impl Iterator<Item = (usize, Answer)> {
        let answers = std::mem::take(&mut self.answers).into_iter();
        answers.map(|answer| (answer.key.counter as usize - 1, answer))
    }

    pub(crate) fn policy_health(&self) -> &PolicyHealth {
        self.scheduler.policy_health()
    }

    /// What must hold when nothing is in flight: no booking, no waiter, nothing refused by the index.
    pub(crate) fn is_at_rest(&self) -> bool {
        let refused = self.index.stats().refused;
        self.scheduler.reservations() == 0 && self.scheduler.waiting() == 0 && refused == Default::default()
    }
}
