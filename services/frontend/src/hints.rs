//! What a caller may say about routing, by request header. A hint that cannot be read is refused with the header's name
//! and what would be right: a pin that is quietly ignored would be worse than none.

use http::{HeaderMap, HeaderValue};
use std::{str::FromStr, sync::Arc, time::Duration};
use switchtower_ids::{Rank, WorkerId};
use switchtower_models::openai::RequestError;
use switchtower_scheduling::{Constraints, Pin};

const ALLOWED_WORKERS: &str = "x-switchtower-allowed-workers";
/// Only this row, or only this worker.
pub(crate) const PIN: &str = "x-switchtower-pin";
const REQUIRED_TAINTS: &str = "x-switchtower-required-taints";
const PREFERRED_TAINTS: &str = "x-switchtower-preferred-taints";
const PRIORITY: &str = "x-switchtower-priority";
const SESSION: &str = "x-switchtower-session";
const DEADLINE_MS: &str = "x-switchtower-deadline-ms";
const EXPECTED_OUTPUT_TOKENS: &str = "x-switchtower-expected-output-tokens";

/// Longest session name, and longest taint, in characters.
const NAME_CHARS_MAX: usize = 256;
/// Most entries of one list.
const LIST_MAX: usize = 1_024;
/// Longest wait that can be asked for, in milliseconds: a day.
const DEADLINE_MS_MAX: u64 = 86_400_000;
/// Beyond this, priorities say nothing.
const PRIORITY_MAX: f64 = 1e9;

/// A request's hints.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hints {
    pub(crate) constraints: Constraints,
    pub(crate) priority: f64,
    pub(crate) session: Option<Arc<str>>,
    /// Longest wait for a worker.
    pub(crate) deadline: Option<Duration>,
    pub(crate) expected_output_tokens: Option<u64>,
}

impl Hints {
    /// Reads the hints of a request.
    ///
    /// # Errors
    /// Status 400, naming the header.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, RequestError> {
        let constraints = Constraints {
            allowed_workers: list(
                headers,
                ALLOWED_WORKERS,
                "worker ids, for example `1,3`",
                number(WorkerId),
            )?,
            pin: one(headers, PIN, "`worker/rank` or `worker`, for example `7/0`", pin)?,
            required_taints: list(headers, REQUIRED_TAINTS, TAINTS, taint)?,
            preferred_taints: list(headers, PREFERRED_TAINTS, TAINTS, taint)?,
            ..Constraints::default()
        };
        Ok(Self {
            constraints,
            priority: one(headers, PRIORITY, "a number from -1e9 to 1e9", priority)?.unwrap_or_default(),
            session: one(headers, SESSION, "1 to 256 visible ASCII characters", session)?,
            deadline: one(
                headers,
                DEADLINE_MS,
                "a whole number of milliseconds from 1 to 86400000",
                deadline,
            )?,
            expected_output_tokens: one(
                headers,
                EXPECTED_OUTPUT_TOKENS,
                "a whole number of tokens",
                |text| text.parse::<u32>().ok().map(u64::from),
            )?,
        })
    }
}

const TAINTS: &str = "taints of at most 256 characters, for example `gpu-h100,eu`";

fn number<T>(make: impl Fn(u64) -> T) -> impl Fn(&str) -> Option<T> {
    move |text| text.parse().ok().map(&make)
}

fn pin(text: &str) -> Option<Pin> {
    let (worker, rank) = match text.split_once('/') {
        Some((worker, rank)) => (worker, Some(Rank(u32::from_str(rank).ok()?))),
        None => (text, None),
    };
    Some(Pin { worker: WorkerId(worker.parse().ok()?), rank })
}

fn taint(text: &str) -> Option<String> {
    (text.chars().count() <= NAME_CHARS_MAX).then(|| text.to_owned())
}

fn priority(text: &str) -> Option<f64> {
    // Not a number fails the comparison.
    text.parse::<f64>().ok().filter(|value| value.abs() <= PRIORITY_MAX)
}

fn session(text: &str) -> Option<Arc<str>> {
    (text.len() <= NAME_CHARS_MAX).then(|| text.into())
}

fn deadline(text: &str) -> Option<Duration> {
    let wait_ms = text.parse().ok().filter(|wait_ms| (1..=DEADLINE_MS_MAX).contains(wait_ms))?;
    Some(Duration::from_millis(wait_ms))
}

/// The one value of a header that may stand once.
fn one<T>(
    headers: &HeaderMap,
    name: &'static str,
    right: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, RequestError> {
    let mut values = headers.get_all(name).into_iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = text(value).filter(|text| !text.is_empty() && values.next().is_none());
    text.and_then(parse).map(Some).ok_or_else(|| refused(name, right, "give it once, as "))
}

/// The comma-separated entries of a header, which may stand more than once.
fn list<T>(
    headers: &HeaderMap,
    name: &'static str,
    right: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, RequestError> {
    let mut entries = Vec::new();
    for value in headers.get_all(name) {
        for entry in text(value).unwrap_or_default().split(',') {
            let entry = Some(entry.trim()).filter(|entry| !entry.is_empty() && entries.len() < LIST_MAX);
            let parsed = entry.and_then(&parse);
            entries.push(parsed.ok_or_else(|| refused(name, right, "give comma-separated "))?);
        }
    }
    Ok(entries)
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok().map(str::trim)
}

fn refused(name: &str, right: &str, how: &str) -> RequestError {
    RequestError::invalid(name.to_owned(), "invalid_header", format!("cannot be read: {how}{right}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&'static str, &str)]) -> Result<Hints, RequestError> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        Hints::read(&headers)
    }

    #[test]
    fn no_headers_are_no_hints() {
        assert_eq!(read(&[]), Ok(Hints::default()));
    }

    #[test]
    fn every_hint_is_read() {
        let hints = read(&[
            (ALLOWED_WORKERS, "1, 3"),
            (ALLOWED_WORKERS, "5"),
            (PIN, "7/2"),
            (REQUIRED_TAINTS, "a,b"),
            (PREFERRED_TAINTS, "c"),
            (PRIORITY, "-2.5"),
            (SESSION, "s-1"),
            (DEADLINE_MS, "250"),
            (EXPECTED_OUTPUT_TOKENS, "40"),
        ])
        .unwrap();
        assert_eq!(hints.constraints.allowed_workers, [WorkerId(1), WorkerId(3), WorkerId(5)]);
        assert_eq!(hints.constraints.pin, Some(Pin { worker: WorkerId(7), rank: Some(Rank(2)) }));
        assert_eq!(hints.constraints.required_taints, ["a", "b"]);
        assert_eq!(hints.constraints.preferred_taints, ["c"]);
        assert_eq!((hints.priority, hints.session.as_deref()), (-2.5, Some("s-1")));
        assert_eq!(
            (hints.deadline, hints.expected_output_tokens),
            (Some(Duration::from_millis(250)), Some(40))
        );
        let any_rank = read(&[(PIN, "7")]).unwrap().constraints.pin;
        assert_eq!(any_rank, Some(Pin { worker: WorkerId(7), rank: None }));
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_the_headers_name() {
        let long = "s".repeat(257);
        let wrong = [
            (ALLOWED_WORKERS, "1,,3"),
            (ALLOWED_WORKERS, ""),
            (ALLOWED_WORKERS, "-1"),
            (PIN, "2/"),
            (PIN, "two/0"),
            (PIN, "-1/0"),
            (PIN, "2/0/0"),
            (PIN, "2/4294967296"),
            (REQUIRED_TAINTS, "a,"),
            (PREFERRED_TAINTS, &long),
            (PRIORITY, "NaN"),
            (PRIORITY, "inf"),
            (PRIORITY, "high"),
            (SESSION, &long),
            (SESSION, ""),
            (DEADLINE_MS, "0"),
            (DEADLINE_MS, "1.5"),
            (EXPECTED_OUTPUT_TOKENS, "-1"),
        ];
        for (name, value) in wrong {
            let error = read(&[(name, value)]).unwrap_err();
            assert_eq!((error.status(), error.param.as_deref()), (400, Some(name)), "{name}: {value}");
        }
        assert!(read(&[(PIN, "1/0"), (PIN, "2/0")]).is_err(), "two pins contradict each other");
    }
}
