//! Who holds a reservation, and its key.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One life of one router process: new at every start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplicaId(pub u128);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Key of a reservation (`book rule 3`): the holder's life and a counter in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReservationKey {
    /// The replica that carries the request.
    pub holder: ReplicaId,
    /// Counts up from 1 in one life of the holder.
    pub counter: u64,
}

impl fmt::Display for ReservationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.holder, self.counter)
    }
}
