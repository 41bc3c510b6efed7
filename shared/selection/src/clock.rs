//! The service's one clock: milliseconds and microseconds since it was made, never going back.

use switchtower_scheduling::policy_host::Clock;
use tokio::time::Instant;

/// Reads the runtime's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceClock(Instant);

impl ServiceClock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now_ms(self) -> u64 {
        self.now_us() / 1_000
    }

    /// When the clock shows `ms`.
    pub(crate) fn at_ms(self, ms: u64) -> Instant {
        // A deadline beyond what an `Instant` can hold is as good as none: look again in a day.
        let day = std::time::Duration::from_secs(86_400);
        self.0.checked_add(std::time::Duration::from_millis(ms)).unwrap_or_else(|| Instant::now() + day)
    }
}

impl Clock for ServiceClock {
    fn now_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
