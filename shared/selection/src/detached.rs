//! Reservations that no stream holds: kept here under their callers' ids, and ended by a call or by idleness.
//!
//! For callers of the selection API, who book here and stream elsewhere. An id is claimed before its request is submitted,
//! so that calls that race for one id book once: the others wait for the first one's end. Freeing an id whose request
//! still waits withdraws the request.

use crate::Reservation;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};
use switchtower_runtime::CancellationToken;
use switchtower_scheduling::Selection;
use tokio::time::Instant;

struct Held {
    reservation: Box<Reservation>,
    fingerprint: u64,
    used: Instant,
}

/// An id whose request is being booked.
#[derive(Clone)]
struct Booking {
    /// Tells it from a later claim to the same id.
    number: u64,
    fingerprint: u64,
    /// Cancelled when the id is freed meanwhile.
    withdrawn: CancellationToken,
    /// Cancelled when the claim ends in whatever way.
    ended: CancellationToken,
}

enum Entry {
    Booking(Booking),
    Held(Held),
}

#[derive(Default)]
struct Entries {
    by_id: HashMap<Arc<str>, Entry>,
    claims: u64,
}

/// Reservations by id.
#[derive(Clone, Default)]
pub(crate) struct Detached(Arc<Mutex<Entries>>);

/// What a request under an id finds.
pub(crate) enum Claimed {
    /// The id is the caller's to book under.
    Mine(Claim),
    /// The same request is booked: its reservation is renewed and its selection given again.
    Same(Box<Selection>),
    /// The same request is being booked by another call: look again when the token is cancelled.
    UnderWay(CancellationToken),
    /// Another request has the id.
    Other,
}

/// What freeing an id finds.
pub(crate) enum Taken {
    /// A reservation, which is the caller's now.
    Held(Box<Reservation>),
    /// A request that was being booked; it is withdrawn.
    Withdrawn,
    /// Nothing.
    None,
}

/// The right to book under an id; dropping it gives the id up.
pub(crate) struct Claim {
    detached: Detached,
    id: Arc<str>,
    booking: Booking,
}

impl Detached {
    pub(crate) fn claim(&self, id: &Arc<str>, fingerprint: u64) -> Claimed {
        let mut entries = self.0.lock();
        match entries.by_id.get_mut(id) {
            Some(Entry::Held(held)) if held.fingerprint == fingerprint => {
                held.used = Instant::now();
                return Claimed::Same(Box::new(held.reservation.selection().clone()));
            }
            Some(Entry::Booking(booking)) if booking.fingerprint == fingerprint => {
                return Claimed::UnderWay(booking.ended.clone());
            }
            Some(_) => return Claimed::Other,
            None => {}
        }
        entries.claims += 1;
        let (withdrawn, ended) = (CancellationToken::new(), CancellationToken::new());
        let booking = Booking { number: entries.claims, fingerprint, withdrawn, ended };
        entries.by_id.insert(Arc::clone(id), Entry::Booking(booking.clone()));
        drop(entries);
        Claimed::Mine(Claim { detached: self.clone(), id: Arc::clone(id), booking })
    }

    /// Calls `act` on the reservation, which renews it. `false` if there is none.
    pub(crate) fn with(&self, id: &str, act: impl FnOnce(&mut Reservation)) -> bool {
        let mut entries = self.0.lock();
        let Some(Entry::Held(held)) = entries.by_id.get_mut(id) else {
            return false;
        };
        held.used = Instant::now();
        act(&mut held.reservation);
        true
    }

    pub(crate) fn take(&self, id: &str) -> Taken {
        match self.0.lock().by_id.remove(id) {
            Some(Entry::Held(held)) => Taken::Held(held.reservation),
            Some(Entry::Booking(booking)) => {
                booking.withdrawn.cancel();
                Taken::Withdrawn
            }
            None => Taken::None,
        }
    }

    /// Ends reservations that nobody has called for `lease`, without a tombstone (`book rule 3`).
    pub(crate) fn end_idle(&self, lease: Duration) {
        let is_idle = |entry: &Entry| matches!(entry, Entry::Held(held) if held.used.elapsed() >= lease);
        let idle: Vec<_> = self.0.lock().by_id.extract_if(|_, entry| is_idle(entry)).collect();
        drop(idle);
    }
}

impl Claim {
    /// Ends when the id is freed before it is booked.
    pub(crate) async fn withdrawn(&self) {
        self.booking.withdrawn.cancelled().await;
    }

    /// Keeps the reservation under the claimed id.
    ///
    /// # Errors
    /// Gives it back if the id was freed meanwhile.
    pub(crate) fn keep(self, reservation: Box<Reservation>) -> Result<(), Box<Reservation>> {
        let mut entries = self.detached.0.lock();
        match entries.by_id.get_mut(&self.id) {
            Some(entry) if self.owns(entry) => {
                let (fingerprint, used) = (self.booking.fingerprint, Instant::now());
                *entry = Entry::Held(Held { reservation, fingerprint, used });
                Ok(())
            }
            _ => Err(reservation),
        }
    }

    fn owns(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Booking(booking) if booking.number == self.booking.number)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut entries = self.detached.0.lock();
        if entries.by_id.get(&self.id).is_some_and(|entry| self.owns(entry)) {
            entries.by_id.remove(&self.id);
        }
        drop(entries);
        self.booking.ended.cancel();
    }
}
