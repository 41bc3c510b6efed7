//! Limits and times of the selection service that are not part of the policy's configuration.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use switchtower_policy::InvalidConfig;
use switchtower_runtime::config::milliseconds;

/// More messages than this under way to one actor are a mistake, not a setting.
const CHANNEL_MAX: usize = 1 << 24;

/// What the service allows and how long it waits. The defaults suit a fleet of a thousand workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelectionOptions {
    /// Requests of one partition that may wait or be in flight; one more is rejected.
    pub reservations_max: usize,
    /// Messages that may be under way to one scheduler.
    pub commands_max: usize,
    /// A worker that refuses a connection is left alone for this long.
    #[serde(rename = "inhibition_ms", with = "milliseconds")]
    pub inhibition: Duration,
    /// A reservation that is driven by its id alone ends after this long without a call.
    #[serde(rename = "idle_lease_ms", with = "milliseconds")]
    pub idle_lease: Duration,
    /// How long a worker may take to answer for a part of its KV event log.
    #[serde(rename = "repair_deadline_ms", with = "milliseconds")]
    pub repair_deadline: Duration,
    /// How often unanswered repairs are asked for again and idle reservations are looked for.
    #[serde(rename = "tick_ms", with = "milliseconds")]
    pub tick: Duration,
    /// Repairs that may be under way at once.
    pub repairs_max: usize,
    /// What rows are assumed to have cached.
    pub assumed: AssumedOptions,
}

/// What a row is assumed to have cached because requests were sent there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AssumedOptions {
    /// For workers without KV events: how long after its last use a block is taken to be cached.
    #[serde(rename = "ttl_ms", with = "milliseconds")]
    pub ttl: Duration,
    /// Blocks of a row whose worker does not say how many it has.
    pub default_blocks: u64,
    /// For workers with KV events: how long after a request was sent its blocks count as cached there even if no event has
    /// said so. Zero for not at all: then blocks count while they are booked. Longer than events take; shorter than
    /// anybody misses a cache that is not there.
    #[serde(rename = "predicted_ttl_ms", with = "milliseconds")]
    pub predicted_ttl: Duration,
}

impl Default for AssumedOptions {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(120), default_blocks: 65_536, predicted_ttl: Duration::ZERO }
    }
}

impl SelectionOptions {
    /// Checks what the tasks and channels cannot do with.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let sizes = [
            ("reservations_max", self.reservations_max),
            ("commands_max", self.commands_max),
            ("repairs_max", self.repairs_max),
        ];
        for (field, value) in sizes {
            if !(1..=CHANNEL_MAX).contains(&value) {
                return Err(InvalidConfig { field, value: value.to_string(), rule: "from 1 to 16777216" });
            }
        }
        if self.assumed.default_blocks == 0 {
            let (field, value) = ("assumed.default_blocks", "0".to_owned());
            return Err(InvalidConfig { field, value, rule: "at least 1" });
        }
        let times = [
            ("tick_ms", self.tick),
            ("repair_deadline_ms", self.repair_deadline),
            ("assumed.ttl_ms", self.assumed.ttl),
        ];
        for (field, value) in times {
            if value.is_zero() {
                return Err(InvalidConfig { field, value: "0".to_owned(), rule: "longer than 0" });
            }
        }
        Ok(())
    }
}

impl Default for SelectionOptions {
    fn default() -> Self {
        Self {
            reservations_max: 65_536,
            commands_max: 16_384,
            inhibition: Duration::from_secs(5),
            idle_lease: Duration::from_secs(300),
            repair_deadline: Duration::from_secs(5),
            tick: Duration::from_millis(500),
            repairs_max: 16,
            assumed: AssumedOptions::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b154_options_that_no_channel_or_timer_can_have_are_refused_by_name() {
        let valid = SelectionOptions::default();
        assert_eq!(valid.validate(), Ok(()));
        let assumed = |change: fn(&mut AssumedOptions)| {
            let mut options = valid.clone();
            change(&mut options.assumed);
            options
        };
        let broken = [
            ("assumed.ttl_ms", assumed(|assumed| assumed.ttl = Duration::ZERO)),
            ("assumed.default_blocks", assumed(|assumed| assumed.default_blocks = 0)),
            ("reservations_max", SelectionOptions { reservations_max: 0, ..valid.clone() }),
            ("reservations_max", SelectionOptions { reservations_max: usize::MAX, ..valid.clone() }),
            ("commands_max", SelectionOptions { commands_max: 0, ..valid.clone() }),
            ("repairs_max", SelectionOptions { repairs_max: 0, ..valid.clone() }),
            ("tick_ms", SelectionOptions { tick: Duration::ZERO, ..valid.clone() }),
            ("repair_deadline_ms", SelectionOptions { repair_deadline: Duration::ZERO, ..valid.clone() }),
        ];
        for (field, options) in broken {
            assert_eq!(options.validate().unwrap_err().field, field);
        }
    }

    #[test]
    fn times_are_written_in_milliseconds_and_what_is_unknown_is_refused() {
        let options: SelectionOptions =
            serde_json::from_str(r#"{"tick_ms":20,"assumed":{"predicted_ttl_ms":2000}}"#).unwrap();
        assert_eq!(options.tick, Duration::from_millis(20));
        assert_eq!(options.assumed.predicted_ttl, Duration::from_secs(2));
        assert_eq!(options.repairs_max, SelectionOptions::default().repairs_max);
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<SelectionOptions>(&text).unwrap(), options);
        for wrong in [r#"{"tick":20}"#, r#"{"assumed":{"ttl":1}}"#] {
            assert!(serde_json::from_str::<SelectionOptions>(wrong).is_err());
        }
    }
}
