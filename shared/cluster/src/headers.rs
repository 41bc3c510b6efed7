//! What travels beside a payload: a few short lines of text, such as the W3C trace context.
//!
//! Must stay small (both limits below are part of the contract, so that adapters can reserve their room in a message) and
//! must carry no secret. Senders make them, adapters write them down, receivers read what they know and ignore the rest.

use crate::BusError;
use std::fmt;

/// How many headers one message may have.
pub const MAX_HEADERS: usize = 16;

/// How many bytes the names and values of one message's headers may have together.
pub const MAX_HEADERS_BYTES: usize = 2_048;

/// Headers of one message: name and value pairs. Values of one name keep their order; names may repeat.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    entries: Vec<(String, String)>,
}

impl Headers {
    /// No headers.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Adds one more header. A name is printable ASCII without spaces and `:`; a value is printable ASCII that neither
    /// begins nor ends with a space.
    ///
    /// # Errors
    /// [`BusError::InvalidHeader`] if the text cannot travel, or if a limit would be passed; nothing is added then.
    pub fn append(&mut self, name: &str, value: &str) -> Result<(), BusError> {
        check(name, value)?;
        if self.entries.len() >= MAX_HEADERS {
            return Err(invalid(name, "a message has at most 16 headers"));
        }
        if self.bytes().saturating_add(name.len() + value.len()) > MAX_HEADERS_BYTES {
            return Err(invalid(name, "the headers of a message have at most 2048 bytes together"));
        }
        self.entries.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// The first value under a name, whose case does not matter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All pairs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of all names and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

/// Names only: a value may say what no log should.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

fn check(name: &str, value: &str) -> Result<(), BusError> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':') {
        return Err(invalid(name, "a name is printable ASCII without spaces and `:`"));
    }
    let plain = value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if !plain || value.starts_with(' ') || value.ends_with(' ') {
        return Err(invalid(name, "a value is printable ASCII without spaces at its ends"));
    }
    Ok(())
}

fn invalid(name: &str, reason: &'static str) -> BusError {
    BusError::InvalidHeader { name: name.chars().take(64).flat_map(char::escape_debug).collect(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_is_found_by_its_name_in_any_case() {
        let mut headers = Headers::new();
        assert!(headers.is_empty() && headers.get("traceparent").is_none());
        headers.append("traceparent", "00-1-2-01").unwrap();
        headers.append("tracestate", "a=1").unwrap();
        headers.append("tracestate", "b=2").unwrap();
        assert_eq!(headers.get("TraceParent"), Some("00-1-2-01"));
        assert_eq!(headers.get("tracestate"), Some("a=1"));
        assert_eq!(headers.iter().count(), 3);
        assert_eq!(format!("{headers:?}"), r#"["traceparent", "tracestate", "tracestate"]"#);
    }

    #[test]
    fn what_could_not_travel_is_refused_and_changes_nothing() {
        let mut headers = Headers::new();
        for (name, value) in
            [("", "v"), ("a b", "v"), ("a:b", "v"), ("ü", "v"), ("a", "v\r\nb: c"), ("a", " v"), ("a", "ü")]
        {
            let refused = headers.append(name, value);
            assert!(matches!(refused, Err(BusError::InvalidHeader { .. })), "{name:?}: {value:?}");
        }
        assert!(headers.is_empty());
        headers.append("a", "").unwrap();
    }

    #[test]
    fn number_and_size_are_limited() {
        let mut headers = Headers::new();
        for _ in 0..MAX_HEADERS {
            headers.append("n", "v").unwrap();
        }
        assert!(headers.append("n", "v").unwrap_err().to_string().contains("16 headers"));

        let mut headers = Headers::new();
        headers.append("n", &"v".repeat(MAX_HEADERS_BYTES - 1)).unwrap();
        assert_eq!(headers.bytes(), MAX_HEADERS_BYTES);
        assert!(headers.append("n", "").unwrap_err().to_string().contains("2048 bytes"));
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_is_one_line_of_ascii(name in any::<String>(), value in any::<String>()) {
            let mut headers = Headers::new();
            if headers.append(&name, &value).is_ok() {
                let line = format!("{name}: {value}");
                prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
                prop_assert_eq!(line.split_once(": "), Some((name.as_str(), value.as_str())));
            }
        }
    }
}
