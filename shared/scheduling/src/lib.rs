//! One partition's scheduler, sans-IO: who may take a request, who waits, who is chosen, and what is booked.
//!
//! The way of a request: [`eligibility`] → [`queue`](WaitingQueue) → overlap and load columns → [`policy_host`] →
//! validation → [`book`]. The selection service drives one [`Scheduler`] per partition and stage; replay drives the same
//! one in virtual time. No clock, no randomness, no IO: time, index and news are parameters.

pub mod book;
pub mod eligibility;
mod outcome;
pub mod policy_host;
mod queue;
mod request;
mod reservation;
mod scheduler;
#[cfg(test)]
mod testing;
mod workers;

pub use outcome::{Exclusions, Outcome, OutcomeRow, Rejection};
pub use queue::{FcfsQueue, Verdict, Waiting, WaitingQueue};
pub use request::{Alias, Answer, ChosenBy, Constraints, Pin, Request, Selection};
pub use reservation::{ReleasePermit, ReservationGuard};
pub use scheduler::{OverlapIndex, RowState, Scheduler};
pub use workers::{RowInfo, RowReport, WorkerTable};
