//! Durations as whole milliseconds, for settings whose names end in `_ms`:
//! `#[serde(rename = "tick_ms", with = "switchtower_runtime::config::milliseconds")]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// Writes a duration; what is longer than the largest number is written as that.
///
/// # Errors
/// The serializer's own.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    // TOML's integers end at i64.
    let ms = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    ms.serialize(serializer)
}

/// Reads a duration.
///
/// # Errors
/// Not a number, negative, or not whole.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}
