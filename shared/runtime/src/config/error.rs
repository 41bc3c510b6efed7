//! Why a configuration cannot be used: one line that names the setting, where it was set, its value, and what would be
//! right (field report B154).

use super::{Redaction, redaction::without_credentials, source::Source};
use serde::de::{self, Expected, Unexpected};
use std::{fmt, io, path::PathBuf};

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path} ({source}): give a TOML file", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is not TOML, or too large to be a configuration.
    #[error("{path}{place}: {reason}", path = path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// `:line:column`, where known.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// An environment variable that is ours by its name cannot be used.
    #[error("{name}: {reason}")]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A setting that there is not, or with a value that it cannot have.
    #[error("{0}")]
    Setting(String),
    /// The tree cannot be written down.
    #[error("the configuration cannot be printed: {0}")]
    Unprintable(String),
}

/// What a type says of a value that it does not take, and where the value stands once that is known.
#[derive(Debug)]
pub(super) struct Mismatch {
    /// What is wrong.
    said: Said,
    place: Option<Place>,
}

#[derive(Debug)]
enum Said {
    /// There is no such setting; there are these.
    Unknown(Vec<String>),
    Wrong(String),
}

#[derive(Debug)]
struct Place {
    path: String,
    source: String,
    value: Option<String>,
}

impl Mismatch {
    pub(super) fn wrong(said: impl fmt::Display) -> Self {
        Self { said: Said::Wrong(said.to_string()), place: None }
    }

    pub(super) fn unknown(known: &[&str]) -> Self {
        let known = known.iter().map(|name| (*name).to_owned()).collect();
        Self { said: Said::Unknown(known), place: None }
    }

    /// Says where, unless that is known already: the innermost place is the right one.
    pub(super) fn at(
        mut self,
        path: impl fmt::Display,
        source: &Source,
        value: impl FnOnce() -> Option<String>,
    ) -> Self {
        if self.place.is_none() {
            self.place = Some(Place { path: path.to_string(), source: source.to_string(), value: value() });
        }
        self
    }
}

/// A value as an error shows it: short, on one line, and nothing of a secret.
pub(super) fn shown(value: &str, key: &str, redaction: Redaction) -> String {
    const CHARS_MAX: usize = 80;
    if redaction.hides(key) {
        return "(hidden)".to_owned();
    }
    let value = without_credentials(value);
    let short: String = value.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    let rest = if value.chars().nth(CHARS_MAX).is_some() { "…" } else { "" };
    format!("`{short}{rest}`")
}

impl From<Mismatch> for ConfigError {
    fn from(mismatch: Mismatch) -> Self {
        let Mismatch { said, place } = mismatch;
        let place =
            place.unwrap_or(Place { path: "configuration".to_owned(), source: String::new(), value: None });
        let Place { path, source, value } = place;
        Self::Setting(match said {
            Said::Unknown(known) if known.is_empty() => {
                format!("{source}: there is no setting `{path}`; --print-config shows those that there are")
            }
            Said::Unknown(known) => {
                format!("{source}: there is no setting `{path}`; beside it there are {}", known.join(", "))
            }
            Said::Wrong(why) => {
                let value = value.map(|value| format!(" is {value}")).unwrap_or_default();
                format!("{source}: `{path}`{value}: {}", advice(&why))
            }
        })
    }
}

/// Says plainly what libraries say tersely.
fn advice(why: &str) -> &str {
    match why {
        "invalid socket address syntax" => {
            "give an IP address and a port, for example 127.0.0.1:8080 or [::1]:8080"
        }
        "it must be u8" => "it must be a whole number from 0 to 255",
        "it must be u16" => "it must be a whole number from 0 to 65535",
        "it must be u32" => "it must be a whole number from 0 to 4294967295",
        "it must be u64" | "it must be usize" => "it must be a whole number that is not negative",
        "it must be i32" | "it must be i64" => "it must be a whole number",
        "it must be f64" | "it must be f32" => "it must be a number",
        "it must be a sequence" => "it must be a list",
        "it must be a boolean" => "it must be true or false",
        other if other.starts_with("it must be struct") => "it is a section: set the settings in it",
        other => other,
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.said {
            Said::Unknown(_) => f.write_str("there is no such setting"),
            Said::Wrong(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Mismatch {}

impl de::Error for Mismatch {
    fn custom<T: fmt::Display>(said: T) -> Self {
        Self::wrong(said)
    }

    fn invalid_type(_found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::wrong(format_args!("it must be {expected}"))
    }

    fn invalid_value(_found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::wrong(format_args!("it must be {expected}"))
    }

    fn unknown_variant(_variant: &str, expected: &'static [&'static str]) -> Self {
        Self::wrong(format_args!("it must be one of {}", expected.join(", ")))
    }

    fn unknown_field(_field: &str, expected: &'static [&'static str]) -> Self {
        Self::unknown(expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::wrong(format_args!("`{field}` is missing in it"))
    }
}
