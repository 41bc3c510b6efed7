//! Where requests wait while every row that may take them is busy.
//!
//! The scheduler sees the trait alone, so that class queues can take the place of the plain one. A queue orders and
//! bounds; it does not decide who may go: that is the `verdict` it is handed.

use crate::{Constraints, Request};
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
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

/// An ordered, bounded set of waiting requests, one per key.
pub trait WaitingQueue: Send {
    /// Adds a request whose key does not wait here.
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

    /// Empties the queue, in order.
    fn drain(&mut self) -> Vec<Waiting>;

    /// Number of waiters.
    fn len(&self) -> usize;

    /// Whether nobody waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A waiter's place in the order of arrival.
type Place = u64;

/// First come, first served among requests that the same rows may take. Requests with other constraints stand in lanes of
/// their own: they neither block nor are blocked by this one's. Who is first is decided over all lanes.
///
/// Everything is indexed: that one leaves costs the same however many wait, and a round of offers costs what there are
/// lanes and what it serves.
#[derive(Debug)]
pub struct FcfsQueue {
    limit: usize,
    next: Place,
    waiting: BTreeMap<Place, Waiting>,
    places: HashMap<ReservationKey, Place>,
    /// By what decides who is eligible. No lane is empty.
    lanes: HashMap<Constraints, BTreeSet<Place>>,
    deadlines: BTreeSet<(u64, Place)>,
}

impl FcfsQueue {
    /// A queue for at most `limit` requests.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            next: 0,
            waiting: BTreeMap::new(),
            places: HashMap::new(),
            lanes: HashMap::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Takes a waiter out; returns it with the place of the next one in its lane.
    fn take(&mut self, place: Place) -> Option<(Waiting, Option<Place>)> {
        let waiting = self.waiting.remove(&place)?;
        self.places.remove(&waiting.request.key);
        self.deadlines.remove(&(waiting.deadline_ms, place));
        let lane = waiting.request.constraints.without_preferences();
        let next = self.lanes.get_mut(&lane).and_then(|places| {
            places.remove(&place);
            places.first().copied()
        });
        if next.is_none() {
            self.lanes.remove(&lane);
        }
        Some((waiting, next))
    }
}

impl WaitingQueue for FcfsQueue {
    fn push(&mut self, waiting: Waiting) -> Result<(), Box<Waiting>> {
        if self.waiting.len() >= self.limit {
            return Err(Box::new(waiting));
        }
        let place = self.next;
        self.next += 1;
        let lane = waiting.request.constraints.without_preferences();
        self.lanes.entry(lane).or_default().insert(place);
        self.deadlines.insert((waiting.deadline_ms, place));
        self.places.insert(waiting.request.key, place);
        self.waiting.insert(place, waiting);
        Ok(())
    }

    fn remove(&mut self, key: ReservationKey) -> Option<Waiting> {
        let place = *self.places.get(&key)?;
        self.take(place).map(|(waiting, _)| waiting)
    }

    fn expire(&mut self, now_ms: u64) -> Vec<Waiting> {
        let mut expired = Vec::new();
        while let Some((deadline_ms, place)) = self.deadlines.first().copied()
            && deadline_ms <= now_ms
        {
            self.deadlines.pop_first();
            expired.extend(self.take(place).map(|(waiting, _)| waiting));
        }
        expired
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline_ms, _)| *deadline_ms)
    }

    fn must_wait(&self, newcomer: &Request) -> bool {
        !self.lanes.is_empty() && self.lanes.contains_key(&newcomer.constraints.without_preferences())
    }

    fn offer(&mut self, verdict: &mut dyn FnMut(&Waiting) -> Verdict) {
        let mut heads: BTreeSet<Place> =
            self.lanes.values().filter_map(|places| places.first().copied()).collect();
        while let Some(place) = heads.pop_first() {
            let Some(waiting) = self.waiting.get(&place) else { continue };
            match verdict(waiting) {
                Verdict::NoRoom => return,
                Verdict::Blocked => {}
                Verdict::Done => heads.extend(self.take(place).and_then(|(_, next)| next)),
            }
        }
    }

    fn drain(&mut self) -> Vec<Waiting> {
        let drained = std::mem::replace(self, Self { next: self.next, ..Self::new(self.limit) });
        drained.waiting.into_values().collect()
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests;
