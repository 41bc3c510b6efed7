//! Limits and times of the selection service that are not part of the policy's configuration.

use std::time::Duration;
use switchtower_policy::InvalidConfig;

/// More messages than this under way to one actor are a mistake, not a setting.
const CHANNEL_MAX: usize = 1 << 24;

/// What the service allows and how long it waits. The defaults suit a fleet of a thousand workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionOptions {
    /// Requests of one partition that may wait or be in flight; one more is rejected.
    pub reservations_max: usize,
    /// Messages that may be under way to one scheduler.
    pub commands_max: usize,
    /// A worker that refuses a connection is left alone for this long.
    pub inhibition: Duration,
    /// A reservation that is driven by its id alone ends after this long without a call.
    pub idle_lease: Duration,
    /// How long a worker may take to answer for a part of its KV event log.
    pub repair_deadline: Duration,
    /// How often unanswered repairs are asked for again and idle reservations are looked for.
    pub tick: Duration,
    /// Repairs that may be under way at once.
    pub repairs_max: usize,
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
        let times = [("tick", self.tick), ("repair_deadline", self.repair_deadline)];
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
        let broken = [
            ("reservations_max", SelectionOptions { reservations_max: 0, ..valid.clone() }),
            ("reservations_max", SelectionOptions { reservations_max: usize::MAX, ..valid.clone() }),
            ("commands_max", SelectionOptions { commands_max: 0, ..valid.clone() }),
            ("repairs_max", SelectionOptions { repairs_max: 0, ..valid.clone() }),
            ("tick", SelectionOptions { tick: Duration::ZERO, ..valid.clone() }),
            ("repair_deadline", SelectionOptions { repair_deadline: Duration::ZERO, ..valid.clone() }),
        ];
        for (field, options) in broken {
            assert_eq!(options.validate().unwrap_err().field, field);
        }
    }
}
