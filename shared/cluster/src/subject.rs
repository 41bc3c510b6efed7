//! Subjects of the bus and the patterns that match them.
//!
//! A subject is tokens joined by dots: `kv.7.0`. A pattern is a subject, or one whose last token is `>`, which stands for
//! one or more tokens: `kv.>`. Every implementation checks with these functions, so that all refuse the same.

use crate::BusError;

/// Longest subject, in bytes.
const MAX_SUBJECT_BYTES: usize = 1_024;

/// Refuses what is no subject: see [`BusError::InvalidSubject`] for the rules. Make tokens of free text with
/// [`escape_token`](crate::escape_token).
///
/// # Errors
/// [`BusError::InvalidSubject`], which says what is wrong.
pub fn check_subject(subject: &str) -> Result<(), BusError> {
    if subject.len() > MAX_SUBJECT_BYTES {
        return Err(invalid(subject, "it has more than 1024 bytes"));
    }
    if subject.split('.').any(str::is_empty) {
        return Err(invalid(subject, "it has an empty token; write for example `kv.7.0`"));
    }
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'>');
    if !subject.bytes().all(plain) {
        return Err(invalid(
            subject,
            "tokens are ASCII without spaces, `*` and `>`; escape names with `escape_token`",
        ));
    }
    Ok(())
}

/// Refuses what is no pattern: a subject, `>` alone, or a subject followed by `.>`.
///
/// # Errors
/// [`BusError::InvalidSubject`], which says what is wrong.
pub fn check_pattern(pattern: &str) -> Result<(), BusError> {
    match split_wildcard(pattern) {
        Some("") => Ok(()),
        Some(stem) => check_subject(stem),
        None => check_subject(pattern),
    }
}

/// Whether a valid pattern matches a valid subject.
#[must_use]
pub fn subject_matches(pattern: &str, subject: &str) -> bool {
    match split_wildcard(pattern) {
        Some("") => true,
        Some(stem) => subject.strip_prefix(stem).is_some_and(|rest| rest.starts_with('.')),
        None => pattern == subject,
    }
}

/// What stands before a trailing `>`, without the dot between.
fn split_wildcard(pattern: &str) -> Option<&str> {
    if pattern == ">" { Some("") } else { pattern.strip_suffix(".>").filter(|stem| !stem.is_empty()) }
}

fn invalid(subject: &str, reason: &'static str) -> BusError {
    let subject = subject.chars().take(128).flat_map(char::escape_debug).collect();
    BusError::InvalidSubject { subject, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn subjects_and_patterns_are_checked() {
        for subject in ["kv", "kv.7.0", "load.a%2Eb", "_x-1"] {
            assert_eq!((check_subject(subject), check_pattern(subject)), (Ok(()), Ok(())), "{subject}");
        }
        for pattern in [">", "kv.>", "kv.7.>"] {
            assert!(check_subject(pattern).is_err() && check_pattern(pattern).is_ok(), "{pattern}");
        }
        for wrong in
            ["", ".", "a.", ".a", "a..b", "a b", "a.*.b", "*", "a>", ">.a", ".>", "a.>.>", "a\n", "ü"]
        {
            assert!(check_subject(wrong).is_err() && check_pattern(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_wildcard_stands_for_one_token_or_more() {
        assert!(
            subject_matches("kv.>", "kv.7")
                && subject_matches("kv.>", "kv.7.0")
                && subject_matches(">", "kv")
        );
        assert!(
            !subject_matches("kv.>", "kv")
                && !subject_matches("kv.>", "kvx.7")
                && !subject_matches("kv", "kv.7")
        );
    }

    proptest! {
        #[test]
        fn a_pattern_matches_exactly_what_its_tokens_say(
            tokens in prop::collection::vec("[a-c]{1,2}", 1..4),
            stem in prop::collection::vec("[a-c]{1,2}", 0..4),
            wild in any::<bool>(),
        ) {
            prop_assume!(wild || !stem.is_empty());
            let mut parts = stem.clone();
            parts.extend(wild.then(|| ">".to_owned()));
            let (pattern, subject) = (parts.join("."), tokens.join("."));
            prop_assert!(check_pattern(&pattern).is_ok());
            let expected = if wild { tokens.len() > stem.len() && tokens.starts_with(&stem) } else { tokens == stem };
            prop_assert_eq!(subject_matches(&pattern, &subject), expected);
        }
    }
}
