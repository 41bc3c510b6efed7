//! Where requests wait while every row that may take them is busy.
//!
//! The scheduler sees the trait alone, so that class queues can take the place of the plain one. A queue orders and
//! bounds; it does not decide who may go: that is the `verdict` it is handed.

use crate::Request;
use std::collections::VecDeque;
use switchtower_ids::ReservationKey;

/// A request in the queue.
#[derive(Debug)]
pub struct Waiting {
    /// The request.
    pub request: Request,
    /// Until when it waits.
    pub deadline_ms: u64,
}

/// What is to happen with a waiter whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves the queue: it was answered.
    Done,
    /// It stays: all its rows are busy.
    Blocked,
    /// It stays, and so do all behind it: no row has room.
    NoRoom,
}

/// An ordered, bounded set of waiting requests.
pub trait WaitingQueue: Send {
    /// Adds a request.
    ///
    /// # Errors
    /// Gives it back if the queue is full.
    fn push(&mut self, waiting: Waiting) -> Result<(), Box<Waiting>>;

    /// Takes out a request that was cancelled.
    fn remove(&mut self, key: ReservationKey) -> Option<Waiting>;

    /// Takes out every request whose deadline is at or before `now_ms`.
    fn expire(&mut self, now_ms: u64) -> Vec<Waiting>;

    /// When to look for expired waiters next; may be too early, never too late.
    fn next_deadline_ms(&self) -> Option<u64>;

    /// Whether a newcomer like this has to queue behind others even if a row is free for it.
    fn must_wait(&self, newcomer: &Request) -> bool;

    /// Offers waiters in order until none can go. A waiter behind a blocked one is offered only if other rows than
    /// the blocked one's could take it.
    fn offer(&mut self, verdict: &mut dyn FnMut(&Waiting) -> Verdict);

    /// Empties the queue.
    fn drain(&mut self) -> Vec<Waiting>;

    /// Number of waiters.
    fn len(&self) -> usize;

    /// Whether nobody waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// First come, first served, with one exception: a request whose constraints tie it to certain rows neither blocks
/// nor is blocked by those that any row may take.
#[derive(Debug)]
pub struct FcfsQueue {
    limit: usize,
    waiting: VecDeque<Waiting>,
    /// How many of them have constraints.
    constrained: usize,
    /// No deadline is earlier; a waiter that left may have had it.
    earliest_ms: Option<u64>,
}

impl FcfsQueue {
    /// A queue for at most `limit` requests.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, waiting: VecDeque::new(), constrained: 0, earliest_ms: None }
    }

    fn left(&mut self, waiting: &Waiting) {
        self.constrained -= usize::from(!waiting.request.constraints.is_open());
    }
}

impl WaitingQueue for FcfsQueue {
    fn push(&mut self, waiting: Waiting) -> Result<(), Box<Waiting>> {
        if self.waiting.len() >= self.limit {
            return Err(Box::new(waiting));
        }
        self.constrained += usize::from(!waiting.request.constraints.is_open());
        self.earliest_ms =
            Some(self.earliest_ms.map_or(waiting.deadline_ms, |ms| ms.min(waiting.deadline_ms)));
        self.waiting.push_back(waiting);
        Ok(())
    }

    fn remove(&mut self, key: ReservationKey) -> Option<Waiting> {
        let position = self.waiting.iter().position(|waiting| waiting.request.key == key)?;
        let waiting = self.waiting.remove(position)?;
        self.left(&waiting);
        Some(waiting)
    }

    fn expire(&mut self, now_ms: u64) -> Vec<Waiting> {
        if self.earliest_ms.is_none_or(|deadline_ms| deadline_ms > now_ms) {
            return Vec::new();
        }
        let (expired, waiting): (VecDeque<_>, _) =
            std::mem::take(&mut self.waiting).into_iter().partition(|waiting| waiting.deadline_ms <= now_ms);
        self.waiting = waiting;
        self.earliest_ms = self.waiting.iter().map(|waiting| waiting.deadline_ms).min();
        expired.iter().for_each(|waiting| self.left(waiting));
        expired.into()
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.earliest_ms
    }

    fn must_wait(&self, newcomer: &Request) -> bool {
        newcomer.constraints.is_open() && self.waiting.len() > self.constrained
    }

    fn offer(&mut self, verdict: &mut dyn FnMut(&Waiting) -> Verdict) {
        let mut open_blocked = false;
        let mut unseen_constrained = self.constrained;
        let mut position = 0;
        while position < self.waiting.len() && !(open_blocked && unseen_constrained == 0) {
            let open = self.waiting[position].request.constraints.is_open();
            unseen_constrained -= usize::from(!open);
            if open && open_blocked {
                position += 1;
                continue;
            }
            match verdict(&self.waiting[position]) {
                Verdict::NoRoom => return,
                Verdict::Blocked => {
                    open_blocked |= open;
                    position += 1;
                }
                Verdict::Done => {
                    if let Some(waiting) = self.waiting.remove(position) {
                        self.left(&waiting);
                    }
                }
            }
        }
    }

    fn drain(&mut self) -> Vec<Waiting> {
        self.constrained = 0;
        self.earliest_ms = None;
        std::mem::take(&mut self.waiting).into()
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests;
