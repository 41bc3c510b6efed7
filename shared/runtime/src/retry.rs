//! Waiting longer after every failure, with jitter: the only user of `backoff`.
//!
//! Must not know what is retried, and never gives up by itself: its caller's token ends it. Used by the adapters to real
//! servers and by everyone else who tries again; tests replace the times, not the code.

use crate::CancellationToken;
use backoff::{SystemClock, backoff::Backoff as _, exponential::ExponentialBackoff};
use std::{fmt::Display, time::Duration};

/// How far apart attempts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryTimes {
    /// The wait after the first failure, on average.
    pub first: Duration,
    /// The longest wait, on average. Each is half as long again as the one before it.
    pub max: Duration,
}

impl Default for RetryTimes {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

/// Waits that grow from `first` to `max`, each drawn from half to one and a half times its mean so that a fleet that
/// failed together does not come back together.
#[derive(Debug)]
pub struct Backoff {
    waits: ExponentialBackoff<SystemClock>,
}

impl Backoff {
    /// A backoff that has seen no failure yet.
    #[must_use]
    pub fn new(times: RetryTimes) -> Self {
        let waits = ExponentialBackoff {
            current_interval: times.first,
            initial_interval: times.first,
            max_interval: times.max.max(times.first),
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        };
        Self { waits }
    }

    /// How long to wait after one more failure. Never ends.
    pub fn next_delay(&mut self) -> Duration {
        // `None` would need a `max_elapsed_time`.
        self.waits.next_backoff().unwrap_or(self.waits.max_interval)
    }

    /// After a success: the next failure waits `first` again.
    pub fn reset(&mut self) {
        self.waits.reset();
    }
}

/// Attempts `op` until it succeeds or `stop` is cancelled, which gives `None` and drops an attempt under way.
///
/// `name` says what is attempted: "connecting to X". An error is logged as a warning when its text differs from the one
/// before it and else quietly, so that an outage is one line; so is the success after it.
pub async fn retry<T, E, F, Fut>(name: &str, times: RetryTimes, stop: &CancellationToken, op: F) -> Option<T>
where
    E: Display,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    attempt(name, times, stop, Failures::default(), op).await
}

/// As [`retry`], for what fails while a connection is away whose owner says so itself: logged for debugging only, so that an
/// outage is one line and not one from each of its victims.
pub async fn retry_dependent<T, E, F, Fut>(
    name: &str,
    times: RetryTimes,
    stop: &CancellationToken,
    op: F,
) -> Option<T>
where
    E: Display,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    attempt(name, times, stop, Failures::dependent(), op).await
}

async fn attempt<T, E, F, Fut>(
    name: &str,
    times: RetryTimes,
    stop: &CancellationToken,
    mut failures: Failures,
    mut op: F,
) -> Option<T>
where
    E: Display,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let mut backoff = Backoff::new(times);
    loop {
        match stop.run_until_cancelled(op()).await? {
            Ok(value) => {
                failures.succeeded(name);
                return Some(value);
            }
            Err(error) => failures.failed(name, &error),
        }
        stop.run_until_cancelled(tokio::time::sleep(backoff.next_delay())).await?;
    }
}

/// Says an outage once: what [`retry`] logs, for loops that are more than one operation.
#[derive(Debug, Default)]
pub struct Failures {
    last: Option<String>,
    count: u64,
    /// Whether somebody else says the outage.
    dependent: bool,
}

impl Failures {
    /// Failures of which nobody hears but those who debug: see [`retry_dependent`].
    #[must_use]
    pub fn dependent() -> Self {
        Self { dependent: true, ..Self::default() }
    }

    /// One more attempt failed.
    pub fn failed(&mut self, name: &str, error: &impl Display) {
        self.count = self.count.saturating_add(1);
        let (error, attempt) = (error.to_string(), self.count);
        if self.dependent || self.last.as_ref() == Some(&error) {
            tracing::debug!(what = name, attempt, error, "failed, trying again");
        } else {
            tracing::warn!(attempt, error, "{name} failed, trying again");
            self.last = Some(error);
        }
    }

    /// It worked; forgets what failed before.
    pub fn succeeded(&mut self, name: &str) {
        match (self.count, self.dependent) {
            (0, _) => {}
            (failures, true) => tracing::debug!(what = name, failures, "works again"),
            (failures, false) => tracing::info!(failures, "{name} works again"),
        }
        *self = Self { dependent: self.dependent, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: RetryTimes = RetryTimes { first: Duration::from_millis(8), max: Duration::from_millis(64) };

    #[test]
    fn waits_grow_with_jitter_to_their_limit_and_start_over_after_a_success() {
        let mut backoff = Backoff::new(TIMES);
        let waits: Vec<Duration> = (0..1_000).map(|_| backoff.next_delay()).collect();
        let (least, most) = (TIMES.first / 2, TIMES.max * 3 / 2 + Duration::from_millis(1));
        assert!(waits.iter().all(|wait| (least..=most).contains(wait)), "{waits:?}");
        let late: Duration = waits[500..].iter().sum();
        assert!(late > TIMES.max * 400, "the waits did not grow: {late:?}");
        assert!(waits[500..].iter().any(|wait| *wait != waits[500]), "no jitter");
        backoff.reset();
        assert!(backoff.next_delay() <= TIMES.first * 3 / 2 + Duration::from_millis(1));
    }

    #[test]
    fn a_limit_below_the_first_wait_is_the_first_wait() {
        let mut backoff = Backoff::new(RetryTimes { first: Duration::from_secs(1), max: Duration::ZERO });
        assert!((0..100).all(|_| backoff.next_delay() >= Duration::from_millis(500)));
    }

    #[tokio::test]
    async fn an_operation_is_tried_until_it_succeeds() {
        let times = RetryTimes { first: Duration::ZERO, max: Duration::ZERO };
        let mut attempts = 0;
        let stop = CancellationToken::new();
        let outcome = retry("count", times, &stop, || {
            attempts += 1;
            std::future::ready(if attempts < 5 { Err("not yet") } else { Ok(attempts) })
        });
        assert_eq!(outcome.await, Some(5));
    }

    #[tokio::test]
    async fn the_token_ends_an_attempt_and_a_wait() {
        let stop = CancellationToken::new();
        let hanging = retry("hang", TIMES, &stop, std::future::pending::<Result<(), &str>>);
        let (outcome, ()) = tokio::join!(hanging, async { stop.cancel() });
        assert_eq!(outcome, None);
        let hour = RetryTimes { first: Duration::from_secs(3600), max: Duration::from_secs(3600) };
        let stop = CancellationToken::new();
        let waiting = retry("fail", hour, &stop, || std::future::ready(Err::<(), _>("no luck")));
        let (outcome, ()) = tokio::join!(waiting, async { stop.cancel() });
        assert_eq!(outcome, None);
    }
}
