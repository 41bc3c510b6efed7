//! An operator's word that a worker gets nothing new: kept without a lease, so it outlives the worker's restarts.

use super::{RECORD_VERSION, RecordError, belongs_at, check_version, field, from_json, to_json};
use serde::{Deserialize, Serialize};
use switchtower_ids::WorkerId;

/// Prefix of every drain setting's key.
pub const DRAINS: &str = "settings/drain/";

/// Longest reason, in bytes.
pub const REASON_BYTES_MAX: usize = 256;

/// A worker that an operator drains, at `settings/drain/<worker_id>`. While it is there every router keeps new requests from
/// the worker; what runs there goes on. A record's own `draining` is the worker's word and another matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainSetting {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// Who gets nothing new.
    pub worker_id: WorkerId,
    /// Why, for people.
    #[serde(default)]
    pub reason: String,
    /// Since when, in milliseconds since 1970; 0 where that is not known.
    #[serde(default)]
    pub since_ms: u64,
}

impl DrainSetting {
    /// A drain for `reason` since `since_ms`.
    ///
    /// # Errors
    /// The reason is too long or has control characters.
    pub fn new(worker_id: WorkerId, reason: &str, since_ms: u64) -> Result<Self, RecordError> {
        let setting = Self { version: RECORD_VERSION, worker_id, reason: reason.to_owned(), since_ms };
        setting.validate()?;
        Ok(setting)
    }

    /// The key of a worker's setting.
    #[must_use]
    pub fn key_of(worker: WorkerId) -> String {
        format!("{DRAINS}{worker}")
    }

    /// The setting as it stands in the store.
    ///
    /// # Errors
    /// Never for the types of this record; the serializer's own error otherwise.
    pub fn to_json(&self) -> Result<Vec<u8>, RecordError> {
        to_json(self)
    }

    /// Reads and checks the setting found at `key`.
    ///
    /// # Errors
    /// Says what is wrong with it, by field.
    pub fn parse(key: &str, json: &[u8]) -> Result<Self, RecordError> {
        let setting: Self = from_json(json)?;
        setting.validate()?;
        belongs_at(key, Self::key_of(setting.worker_id))?;
        Ok(setting)
    }

    fn validate(&self) -> Result<(), RecordError> {
        check_version(self.version)?;
        let plain = self.reason.len() <= REASON_BYTES_MAX && !self.reason.chars().any(char::is_control);
        let rule = "at most 256 bytes without control characters";
        field(plain, "reason", &format!("{} bytes long", self.reason.len()), rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_survives_json_and_what_is_wrong_with_it_is_said_by_field() {
        let setting = DrainSetting::new(WorkerId(7), "a new kernel", 5).unwrap();
        let json = setting.to_json().unwrap();
        assert_eq!(DrainSetting::parse("settings/drain/7", &json), Ok(setting));
        assert!(matches!(DrainSetting::parse("settings/drain/8", &json), Err(RecordError::Key { .. })));
        let minimal = br#"{"version":1,"worker_id":7,"of_later_releases":1}"#;
        assert_eq!(DrainSetting::parse("settings/drain/7", minimal).unwrap().since_ms, 0);
        let later = br#"{"version":2,"worker_id":7}"#;
        assert_eq!(DrainSetting::parse("settings/drain/7", later), Err(RecordError::Version(2)));
        for reason in ["line\nbreak", &"x".repeat(REASON_BYTES_MAX + 1)] {
            let refused = DrainSetting::new(WorkerId(7), reason, 0);
            assert!(matches!(refused, Err(RecordError::Field { field: "reason", .. })));
        }
    }
}
