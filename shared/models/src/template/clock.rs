//! The time that templates see through `strftime_now`. A parameter, so that renders repeat in tests; only
//! [`Clock::system`] looks at the machine.

use jiff::{Timestamp, Zoned, tz::TimeZone};
use std::{fmt, sync::Arc};

/// Tells templates the time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Zoned + Send + Sync>);

impl Clock {
    /// A clock that asks `now` for seconds since 1970 and shows UTC. A time out of range shows as 1970.
    pub fn utc(now_unix_s: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(move || {
            let timestamp = Timestamp::from_second(now_unix_s()).unwrap_or(Timestamp::UNIX_EPOCH);
            timestamp.to_zoned(TimeZone::UTC)
        }))
    }

    /// Always the same time, in UTC.
    #[must_use]
    pub fn fixed(unix_s: i64) -> Self {
        Self::utc(move || unix_s)
    }

    /// The machine's clock in the machine's time zone, as engines use it.
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::new(Zoned::now))
    }

    /// The time in `format`, with the directives of C's `strftime`.
    pub(super) fn format(&self, format: &str) -> Result<String, jiff::Error> {
        jiff::fmt::strtime::format(format, &(self.0)())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
