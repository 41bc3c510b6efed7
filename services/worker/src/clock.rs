//! The engine's virtual time on tokio's clock, faster or slower by a factor. Follows a paused test clock. Called by
//! `rank`.

use std::time::Duration;
use tokio::time::Instant;

/// Virtual microseconds since the worker began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VirtualClock {
    began: Instant,
    /// Virtual seconds per real second; finite and positive.
    speed: f64,
}

impl VirtualClock {
    /// A clock that begins now. `speed` is valid: see [`crate::SimulatedWorkerConfig`].
    pub(crate) fn start(speed: f64) -> Self {
        Self { began: Instant::now(), speed }
    }

    /// Virtual time now.
    pub(crate) fn now_us(&self) -> u64 {
        // Saturates; 2^53 µs are 285 years.
        (self.began.elapsed().as_secs_f64() * self.speed * 1e6) as u64
    }

    /// The real moment at which virtual time has reached `at_us`: never early.
    pub(crate) fn real(&self, at_us: u64) -> Instant {
        const FAR: Duration = Duration::from_secs(86_400 * 365);
        let wait = Duration::try_from_secs_f64(at_us as f64 / 1e6 / self.speed).unwrap_or(FAR).min(FAR);
        // One more: truncation must not make a sleeper wake before its event is due, and spin.
        self.began + wait + Duration::from_micros(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_sleeps_until_an_event_wakes_when_it_is_due() {
        for (speed, last_us) in [(0.01, 50), (1.0, 3_000), (1_000.0, 3_000_003)] {
            let clock = VirtualClock::start(speed);
            for at_us in [0, 1, last_us] {
                tokio::time::sleep_until(clock.real(at_us)).await;
                assert!(clock.now_us() >= at_us, "{speed}: {} < {at_us}", clock.now_us());
            }
        }
    }

    #[tokio::test]
    async fn the_far_future_is_a_moment_too() {
        let clock = VirtualClock::start(1e-6);
        assert!(clock.real(u64::MAX) > clock.real(1));
    }
}
