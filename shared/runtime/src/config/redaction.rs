//! What must not be shown of a configuration: the values of secret settings, and credentials inside of URLs (field report
//! B146, design invariant 9). Used by error messages, by `--print-config` and by the admin API.

use super::ConfigError;
use serde::Serialize;
use serde_json::Value;

/// What stands in the place of a secret.
const HIDDEN: &str = "***";

/// The names of secret settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Redaction {
    secrets: &'static [&'static str],
}

impl Redaction {
    /// Settings of these names (the last part of their path) are secret.
    #[must_use]
    pub const fn new(secrets: &'static [&'static str]) -> Self {
        Self { secrets }
    }

    /// Whether nothing of this setting may be shown.
    pub(super) fn hides(self, key: &str) -> bool {
        self.secrets.contains(&key)
    }

    /// `config` as a program reads it: unset settings left out, secrets hidden.
    ///
    /// # Errors
    /// The tree cannot be serialised.
    pub fn json(self, config: &impl Serialize) -> Result<Value, ConfigError> {
        let value =
            serde_json::to_value(config).map_err(|error| ConfigError::Unprintable(error.to_string()))?;
        Ok(self.cleared(value))
    }

    /// `config` as a TOML file that sets all of it, secrets hidden.
    ///
    /// # Errors
    /// The tree cannot be serialised, or holds an integer that TOML has not.
    pub fn toml(self, config: &impl Serialize) -> Result<String, ConfigError> {
        let value = self.json(config)?;
        toml::to_string(&value).map_err(|error| ConfigError::Unprintable(error.to_string()))
    }

    fn cleared(self, value: Value) -> Value {
        match value {
            Value::Object(object) => object
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| {
                    let value = if self.hides(&key) { HIDDEN.into() } else { self.cleared(value) };
                    (key, value)
                })
                .collect(),
            Value::Array(items) => items.into_iter().map(|item| self.cleared(item)).collect(),
            Value::String(text) => without_credentials(&text).into(),
            scalar => scalar,
        }
    }
}

/// The text, with what stands before the `@` of a URL hidden. Lists in one text (`a,b`) have each of theirs hidden.
pub(super) fn without_credentials(text: &str) -> String {
    let clean = |url: &str| {
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        let (_, host) = authority.rsplit_once('@')?;
        Some(format!("{scheme}://{HIDDEN}@{host}{}", rest.strip_prefix(authority)?))
    };
    let cleaned: Vec<String> =
        text.split(',').map(|url| clean(url).unwrap_or_else(|| url.to_owned())).collect();
    cleaned.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invariant_9_credentials_in_urls_are_hidden_wherever_they_stand() {
        let shown = [
            ("nats://ann:pw@host:4222", "nats://***@host:4222"),
            (
                "http://host:2379,https://u:p@[::1]:2379/x?y#z",
                "http://host:2379,https://***@[::1]:2379/x?y#z",
            ),
            ("http://host/a@b", "http://host/a@b"),
            ("ann@host", "ann@host"),
        ];
        for (text, expected) in shown {
            assert_eq!(without_credentials(text), expected);
        }
    }
}
