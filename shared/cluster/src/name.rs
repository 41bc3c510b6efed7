//! The cluster's name, and how any text becomes one token of a key or subject (rule 4).
//!
//! Escaping must be injective: two different names that met in one token would let two clusters see each other.
//! Adapters prepend the escaped name; others escape model or group names that they put into keys and subjects.

use std::{fmt, fmt::Write, sync::Arc};

/// A cluster's name: any text. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterName {
    name: Arc<str>,
}

impl ClusterName {
    /// The name as one token; see [`escape_token`].
    #[must_use]
    pub fn escaped(&self) -> String {
        escape_token(&self.name)
    }

    /// The name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl<T: Into<Arc<str>>> From<T> for ClusterName {
    fn from(name: T) -> Self {
        Self { name: name.into() }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// `text` as one token of a key or a subject: ASCII letters, digits, `_` and `-` stand for themselves, every other byte
/// becomes `%` and two upper-case hexadecimal digits, and empty text becomes `%`. Different texts give different tokens.
#[must_use]
pub fn escape_token(text: &str) -> String {
    if text.is_empty() {
        return "%".to_owned();
    }
    let mut token = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            token.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(token, "%{byte:02X}");
        }
    }
    token
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The inverse, which exists only to show that there is one.
    fn unescape(token: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = if token == "%" { "" } else { token }.as_bytes();
        while let Some((&first, tail)) = rest.split_first() {
            if first == b'%' {
                let digits = std::str::from_utf8(&tail[..2]).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = &tail[2..];
            } else {
                bytes.push(first);
                rest = tail;
            }
        }
        bytes
    }

    #[test]
    fn separators_and_wildcards_never_survive() {
        assert_eq!(escape_token("prod-eu_1"), "prod-eu_1");
        assert_eq!(escape_token("a.b/c*>%"), "a%2Eb%2Fc%2A%3E%25");
        assert_eq!(escape_token(""), "%");
        assert_eq!(ClusterName::from("ü").escaped(), "%C3%BC");
    }

    proptest! {
        #[test]
        fn a_token_is_one_valid_token_and_tells_its_text(text in any::<String>()) {
            let token = escape_token(&text);
            prop_assert!(!token.is_empty());
            prop_assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-%".contains(&byte)));
            prop_assert_eq!(unescape(&token), text.into_bytes());
        }
    }
}
