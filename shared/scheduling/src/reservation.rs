//! The reservation as a guard: whoever holds it releases it, exactly once, by drop.

use std::fmt;
use switchtower_ids::ReservationKey;

/// How a guard tells the scheduler that its request is over.
///
/// The permit was acquired before the request was submitted, so releasing cannot fail for want of queue space
/// (`book rule 22`).
pub trait ReleasePermit: Send {
    /// The request under `key` is over, whether it still waits or is booked. `by_caller` tells a caller's own release
    /// from the loss of its holder.
    fn release(self: Box<Self>, key: ReservationKey, by_caller: bool);
}

/// Ownership of a request's place, from before it is submitted until it is over: dropping it while the request waits
/// takes it out of the queue, dropping it later releases the booking.
///
/// Design invariant 1: every reservation is released exactly once, by drop, on every path.
#[must_use = "dropping the guard releases the reservation"]
pub struct ReservationGuard {
    key: ReservationKey,
    permit: Option<Box<dyn ReleasePermit>>,
}

impl ReservationGuard {
    /// The guard of the request that will be submitted under `key`.
    pub fn new(key: ReservationKey, permit: Box<dyn ReleasePermit>) -> Self {
        Self { key, permit: Some(permit) }
    }

    /// The reservation's key.
    #[must_use]
    pub const fn key(&self) -> ReservationKey {
        self.key
    }

    /// Releases because the caller asked for it.
    pub fn free(mut self) {
        self.release(true);
    }

    fn release(&mut self, by_caller: bool) {
        if let Some(permit) = self.permit.take() {
            permit.release(self.key, by_caller);
        }
    }
}

impl Drop for ReservationGuard {
    fn drop(&mut self) {
        self.release(false);
    }
}

impl fmt::Debug for ReservationGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReservationGuard").field(&self.key).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use switchtower_ids::ReplicaId;

    struct Channel(mpsc::Sender<(ReservationKey, bool)>);

    impl ReleasePermit for Channel {
        fn release(self: Box<Self>, key: ReservationKey, by_caller: bool) {
            self.0.send((key, by_caller)).unwrap();
        }
    }

    #[test]
    fn invariant_1_a_guard_releases_once_by_drop_also_while_unwinding() {
        let (sender, released) = mpsc::channel();
        let key = ReservationKey { holder: ReplicaId(1), counter: 7 };
        drop(ReservationGuard::new(key, Box::new(Channel(sender.clone()))));
        assert_eq!(released.try_iter().collect::<Vec<_>>(), [(key, false)]);
        ReservationGuard::new(key, Box::new(Channel(sender.clone()))).free();
        assert_eq!(released.try_iter().collect::<Vec<_>>(), [(key, true)]);
        let unwound = std::panic::catch_unwind(|| {
            let _guard = ReservationGuard::new(key, Box::new(Channel(sender.clone())));
            panic!("as a handler might");
        });
        assert!(unwound.is_err());
        assert_eq!(released.try_iter().collect::<Vec<_>>(), [(key, false)]);
    }
}
