//! The Azure format: CSV with a header, whose columns are found by name. Called by `reading`.

use super::reading::{Prefixes, Recorded, TOKENS_MAX, TraceError};

const TIMESTAMP: &str = "TIMESTAMP";
const CONTEXT: &str = "ContextTokens";
const GENERATED: &str = "GeneratedTokens";

/// Where the columns are.
#[derive(Debug)]
pub(super) struct Columns {
    timestamp: usize,
    context: usize,
    generated: usize,
}

impl Columns {
    /// Whether a line names the first of the columns.
    pub(super) fn looks_like_a_header(text: &str) -> bool {
        fields(text).any(|field| field.eq_ignore_ascii_case(TIMESTAMP))
    }

    /// Finds the columns in the header.
    pub(super) fn find(line: usize, header: &str) -> Result<Self, TraceError> {
        let find = |name: &str| {
            let found = fields(header).position(|field| field.eq_ignore_ascii_case(name));
            found.ok_or_else(|| {
                let reason = format!("the column {name} is missing in the header");
                TraceError::Malformed { line, reason }
            })
        };
        Ok(Self { timestamp: find(TIMESTAMP)?, context: find(CONTEXT)?, generated: find(GENERATED)? })
    }

    /// Reads one line, or says what is wrong with it.
    pub(super) fn parse(&self, text: &str) -> Result<Recorded, String> {
        let field =
            |at: usize, name: &str| fields(text).nth(at).ok_or_else(|| format!("there is no column {name}"));
        let tokens = |at, name, least| {
            let text = field(at, name)?;
            let tokens = text.parse().ok().filter(|tokens| (least..=TOKENS_MAX).contains(tokens));
            tokens.ok_or_else(|| format!("{name} is {text:?}: it must be a number of tokens from {least}"))
        };
        let timestamp = field(self.timestamp, TIMESTAMP)?;
        let at_us = microseconds(timestamp)
            .ok_or_else(|| format!("{TIMESTAMP} is {timestamp:?}: write 2023-11-16 18:15:46.6805900"))?;
        Ok(Recorded {
            at_us,
            input_length: tokens(self.context, CONTEXT, 1)?,
            output_length: tokens(self.generated, GENERATED, 0)?,
            blocks: Prefixes::Unique,
        })
    }
}

fn fields(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(|field| field.trim().trim_matches('"'))
}

/// Microseconds since the year 0 of `YYYY-MM-DD hh:mm:ss[.fraction]`.
fn microseconds(text: &str) -> Option<u64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let [year, month, day] = numbers(date, '-')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':')?;
    let in_range = (1..=12).contains(&month) && (1..=month_days(year, month)).contains(&day);
    // 60 is a leap second.
    if !in_range || year > 9_999 || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let months: u64 = (1..month).map(|month| month_days(year, month)).sum();
    let days = year * 365 + leap_days_before(year) + months + day - 1;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1_000_000 + fraction_us(fraction)?)
}

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator).map(digits);
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The first six digits after the point.
fn fraction_us(digits_after_point: &str) -> Option<u64> {
    digits(digits_after_point.get(..9.min(digits_after_point.len()))?)?;
    let padded = digits_after_point.bytes().chain(std::iter::repeat(b'0')).take(6);
    Some(padded.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn leap_days_before(year: u64) -> u64 {
    let last = year.saturating_sub(1);
    // The year 0 is a leap year itself.
    last / 4 - last / 100 + last / 400 + u64::from(year > 0)
}

fn month_days(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_across_days_months_and_leap_years() {
        let us = |text| microseconds(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(us("2023-11-16 18:15:46.6805900") % 1_000_000, 680_590);
        assert_eq!(us("2023-11-16 18:15:46.6805909"), us("2023-11-16T18:15:46.68059"), "whole microseconds");
        let steps = [
            ("2023-11-16 23:59:59", "2023-11-17 00:00:00"),
            ("2023-12-31 23:59:59", "2024-01-01 00:00:00"),
            ("2024-02-29 23:59:59", "2024-03-01 00:00:00"),
            ("2100-02-28 23:59:59", "2100-03-01 00:00:00"),
            ("2000-12-31 23:59:59", "2001-01-01 00:00:00"),
            ("0000-12-31 23:59:59", "0001-01-01 00:00:00"),
        ];
        for (before, after) in steps {
            assert_eq!(us(after) - us(before), 1_000_000, "{before} {after}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let texts = [
            "",
            "2023-11-16",
            "2023-02-29 00:00:00",
            "2023-13-01 00:00:00",
            "2023-11-16 24:00:00",
            "2023-11-16 00:00:00.x",
            "2023-11-16 00:00",
            "+2023-11-16 00:00:00",
            "2023-11-16 00:00:00.ééééé",
            "99999999999999999999-11-16 00:00:00",
        ];
        for text in texts {
            assert_eq!(microseconds(text), None, "{text:?}");
        }
    }

    #[test]
    fn columns_are_found_by_name_in_any_order() {
        let columns = Columns::find(1, "GeneratedTokens, \"TIMESTAMP\",ContextTokens,more").unwrap();
        let recorded = columns.parse("5,2023-11-16 18:15:46,70,x").unwrap();
        assert_eq!((recorded.input_length, recorded.output_length), (70, 5));
        let wrong = columns.parse("5,2023-11-16 18:15:46,-1,x").unwrap_err();
        assert!(wrong.contains("ContextTokens is \"-1\""), "{wrong}");
        assert!(columns.parse("5").unwrap_err().contains("no column TIMESTAMP"));
    }
}
