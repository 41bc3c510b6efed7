//! What tells one life of a worker from another, and the wall clock that its reports carry. Used by the simulated worker
//! and by the engine agent.

use std::time::{SystemTime, UNIX_EPOCH};
use switchtower_ids::Incarnation;
use uuid::Uuid;

/// A new life's name: drawn anew, so that no two lives share one.
pub(crate) fn new_incarnation() -> Incarnation {
    let (high, low) = Uuid::new_v4().as_u64_pair();
    Incarnation(high ^ low)
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
