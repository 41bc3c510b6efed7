//! How a port's connection is doing, for metrics and the admin API.
//!
//! Must not decide anything: readiness and routing follow the tables, not this. [`HealthRecord`] is what adapters keep;
//! [`PortHealth`] is what they show.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// One port's connection at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortHealth {
    /// Whether calls can be expected to succeed.
    pub connected: bool,
    /// How long it has been so. Absent where no clock runs: in memory.
    pub age: Option<Duration>,
    /// How often the connection was made again after it had been lost.
    pub reconnects: u64,
    /// What the last attempt or the last lost connection said; kept when the connection is back. Never a credential.
    pub last_error: Option<String>,
}

impl PortHealth {
    /// A connection that needs nothing but memory.
    #[must_use]
    pub fn in_memory(connected: bool) -> Self {
        Self { connected, age: None, reconnects: 0, last_error: None }
    }
}

/// What an adapter writes down as its connection comes and goes. It starts disconnected.
#[derive(Debug)]
pub struct HealthRecord {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    connected: bool,
    since: Instant,
    connects: u64,
    last_error: Option<String>,
}

impl Default for HealthRecord {
    fn default() -> Self {
        let state = State { connected: false, since: Instant::now(), connects: 0, last_error: None };
        Self { state: Mutex::new(state) }
    }
}

impl HealthRecord {
    /// The connection is there. Said twice in a row, the second changes nothing.
    pub fn connected(&self) {
        let mut state = self.state.lock();
        if !state.connected {
            (state.connected, state.since) = (true, Instant::now());
            state.connects = state.connects.saturating_add(1);
        }
    }

    /// The connection is lost, or one more attempt failed. `error` must carry no credential.
    pub fn disconnected(&self, error: impl Into<String>) {
        let mut state = self.state.lock();
        if state.connected {
            (state.connected, state.since) = (false, Instant::now());
        }
        state.last_error = Some(error.into());
    }

    /// Something was refused on a connection that goes on. `error` must carry no credential.
    pub fn error(&self, error: impl Into<String>) {
        self.state.lock().last_error = Some(error.into());
    }

    /// How it is now.
    #[must_use]
    pub fn now(&self) -> PortHealth {
        let state = self.state.lock();
        PortHealth {
            connected: state.connected,
            age: Some(state.since.elapsed()),
            reconnects: state.connects.saturating_sub(1),
            last_error: state.last_error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnects_are_counted_and_the_last_error_is_kept() {
        let record = HealthRecord::default();
        assert_eq!((record.now().connected, record.now().reconnects), (false, 0));
        record.disconnected("refused");
        record.connected();
        record.connected();
        assert_eq!((record.now().connected, record.now().reconnects), (true, 0));
        record.disconnected("reset");
        record.disconnected("refused again");
        record.connected();
        let health = record.now();
        assert_eq!((health.connected, health.reconnects), (true, 1));
        assert_eq!(health.last_error.as_deref(), Some("refused again"));
    }
}
