//! Callers' own names for reservations, and the tombstones that make a repeated release harmless (`book rule 3`).

use crate::Alias;
use hashbrown::HashMap;
use std::{collections::VecDeque, sync::Arc};
use switchtower_ids::ReservationKey;

/// How long a released alias answers [`Freed::AlreadyReleased`].
const TOMBSTONE_MS: u64 = 60_000;

/// Tombstones kept at most; beyond that the oldest go first.
const TOMBSTONES_MAX: usize = 65_536;

/// What a caller's release finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// A live reservation.
    Live(ReservationKey),
    /// It was released by a caller within the last minute.
    AlreadyReleased,
    /// Nothing known under this id.
    Unknown,
}

#[derive(Debug, Default)]
pub(super) struct Aliases {
    live: HashMap<Arc<str>, (ReservationKey, u64)>,
    /// When each tombstone ends.
    tombstones: HashMap<Arc<str>, u64>,
    /// The same, oldest first; an alias that was used again has a newer end in the map.
    order: VecDeque<(u64, Arc<str>)>,
}

impl Aliases {
    pub(super) fn bind(&mut self, alias: &Alias, key: ReservationKey) {
        self.tombstones.remove(&alias.id);
        self.live.insert(Arc::clone(&alias.id), (key, alias.fingerprint));
    }

    /// Unbinds `id` if it is `key`'s; a release that a caller asked for at `by_caller_ms` leaves a tombstone.
    pub(super) fn release(&mut self, id: &Arc<str>, key: ReservationKey, by_caller_ms: Option<u64>) {
        if self.live.get(id).is_some_and(|(holder, _)| *holder == key) {
            self.live.remove(id);
        }
        if let Some(now_ms) = by_caller_ms {
            self.bury(id, now_ms);
        }
    }

    fn bury(&mut self, id: &Arc<str>, now_ms: u64) {
        let end_ms = now_ms.saturating_add(TOMBSTONE_MS);
        self.tombstones.insert(Arc::clone(id), end_ms);
        self.order.push_back((end_ms, Arc::clone(id)));
        while self.order.front().is_some_and(|(end, _)| *end <= now_ms) || self.order.len() > TOMBSTONES_MAX {
            let Some((end, id)) = self.order.pop_front() else {
                break;
            };
            if self.tombstones.get(&id) == Some(&end) {
                self.tombstones.remove(&id);
            }
        }
    }

    pub(super) fn find(&self, id: &str) -> Option<(ReservationKey, u64)> {
        self.live.get(id).copied()
    }

    pub(super) fn freed(&self, now_ms: u64, id: &str) -> Freed {
        match (self.live.get(id), self.tombstones.get(id)) {
            (Some((key, _)), _) => Freed::Live(*key),
            (None, Some(end_ms)) if *end_ms > now_ms => Freed::AlreadyReleased,
            _ => Freed::Unknown,
        }
    }
}
