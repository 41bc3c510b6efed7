//! Newtypes that every room needs: who a worker is, which row may receive a request, which partition it belongs
//! to, and the two kinds of block hash.
//!
//! Nothing here does anything: no clock, no randomness, no IO. A type moves here when a second room needs it.

mod hash;
mod partition;
mod reservation;
mod worker;

pub use hash::{LocalHash, SequenceHash, Tier};
pub use partition::{PartitionId, Stage};
pub use reservation::{ReplicaId, ReservationKey};
pub use worker::{Incarnation, Life, ParseRowError, Rank, Row, WorkerId};
