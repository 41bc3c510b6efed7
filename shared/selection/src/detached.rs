//! Reservations that no stream holds: kept here under their callers' ids, and ended by a call or by idleness.
//!
//! For callers of the selection API, who book here and stream elsewhere.

use crate::Reservation;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};
use switchtower_scheduling::Selection;
use tokio::time::Instant;

struct Held {
    reservation: Reservation,
    fingerprint: u64,
    used: Instant,
}

/// What is found under an id that is to be booked.
pub(crate) enum Existing {
    /// Nothing.
    None,
    /// The same request: its reservation is renewed and its selection given again.
    Same(Box<Selection>),
    /// Another request.
    Other,
}

/// Reservations by id.
#[derive(Clone, Default)]
pub(crate) struct Detached(Arc<Mutex<HashMap<Arc<str>, Held>>>);

impl Detached {
    pub(crate) fn find(&self, id: &str, fingerprint: u64) -> Existing {
        match self.0.lock().get_mut(id) {
            None => Existing::None,
            Some(held) if held.fingerprint == fingerprint => {
                held.used = Instant::now();
                Existing::Same(Box::new(held.reservation.selection().clone()))
            }
            Some(_) => Existing::Other,
        }
    }

    /// Keeps a reservation. One that was there under the same id is given back: two calls raced.
    pub(crate) fn keep(
        &self,
        id: Arc<str>,
        reservation: Reservation,
        fingerprint: u64,
    ) -> Option<Reservation> {
        let held = Held { reservation, fingerprint, used: Instant::now() };
        self.0.lock().insert(id, held).map(|before| before.reservation)
    }

    /// Calls `act` on the reservation, which renews it. `false` if there is none.
    pub(crate) fn with(&self, id: &str, act: impl FnOnce(&mut Reservation)) -> bool {
        let mut held = self.0.lock();
        let Some(held) = held.get_mut(id) else {
            return false;
        };
        held.used = Instant::now();
        act(&mut held.reservation);
        true
    }

    pub(crate) fn take(&self, id: &str) -> Option<Reservation> {
        self.0.lock().remove(id).map(|held| held.reservation)
    }

    /// Ends reservations that nobody has called for `lease`, without a tombstone (`book rule 3`).
    pub(crate) fn end_idle(&self, lease: Duration) {
        let idle: Vec<Held> =
            self.0.lock().extract_if(|_, held| held.used.elapsed() >= lease).map(|(_, held)| held).collect();
        drop(idle);
    }
}
