//! Limits and times of the selection service that are not part of the policy's configuration.

use std::time::Duration;

/// What the service allows and how long it waits. The defaults suit a fleet of a thousand workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionOptions {
    /// Requests of one partition that may wait or be in flight; one more is rejected.
    pub reservations_max: usize,
    /// Messages that may be under way to one scheduler.
    pub commands_max: usize,
    /// A worker that refuses a connection is left alone for this long.
    pub inhibition: Duration,
    /// A reservation that is driven by its id alone ends after this long without a call.
    pub idle_lease: Duration,
    /// How long a worker may take to answer for a part of its KV event log.
    pub repair_deadline: Duration,
    /// How often unanswered repairs are asked for again and idle reservations are looked for.
    pub tick: Duration,
    /// Repairs that may be under way at once.
    pub repairs_max: usize,
}

impl Default for SelectionOptions {
    fn default() -> Self {
        Self {
            reservations_max: 65_536,
            commands_max: 16_384,
            inhibition: Duration::from_secs(5),
            idle_lease: Duration::from_secs(300),
            repair_deadline: Duration::from_secs(5),
            tick: Duration::from_millis(500),
            repairs_max: 16,
        }
    }
}
