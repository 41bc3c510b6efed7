//! Faults on purpose, for tests of whoever calls the worker: refuse, cut, be slow. Off by default. Decides only; the
//! request path in `api` and `answer` acts.

use crate::text::Dice;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// What goes wrong, and how often. Each request draws once, from the worker's seed, in order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Probability that a request is answered 500 before a byte of the answer; nothing reaches the engine.
    pub fail_before_first_byte: f64,
    /// Probability that `cut_after_tokens` applies; 1 cuts every answer.
    pub cut_probability: f64,
    /// After this many tokens of output the connection is broken, as by a crash. A plain answer breaks before its
    /// first byte.
    pub cut_after_tokens: u32,
    /// Probability that `slow_ms` applies.
    pub slow_probability: f64,
    /// Silence before the request reaches the engine, in milliseconds; not a byte is sent in the meantime.
    pub slow_ms: u64,
}

/// Faults that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("faults.{field} is {value}: a probability is a number from 0 to 1")]
pub struct FaultError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: f64,
}

impl Faults {
    /// Refuses probabilities that are none.
    ///
    /// # Errors
    /// Names the field and its value.
    pub fn validate(&self) -> Result<(), FaultError> {
        let probabilities = [
            ("fail_before_first_byte", self.fail_before_first_byte),
            ("cut_probability", self.cut_probability),
            ("slow_probability", self.slow_probability),
        ];
        match probabilities.into_iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
            Some((field, value)) => Err(FaultError { field, value }),
            None => Ok(()),
        }
    }
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) fails: bool,
    pub(crate) cut_after_tokens: Option<u32>,
    pub(crate) slow_ms: u64,
}

/// Draws fates. The faults can be changed while the worker runs.
#[derive(Debug)]
pub(crate) struct FaultSource(Mutex<(Faults, Dice)>);

impl FaultSource {
    /// `faults` are valid.
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        Self(Mutex::new((faults, Dice::new(seed))))
    }

    pub(crate) fn set(&self, faults: Faults) {
        self.0.lock().0 = faults;
    }

    pub(crate) fn draw(&self) -> Fate {
        let (faults, dice) = &mut *self.0.lock();
        Fate {
            fails: dice.chance(faults.fail_before_first_byte),
            cut_after_tokens: dice.chance(faults.cut_probability).then_some(faults.cut_after_tokens),
            slow_ms: if dice.chance(faults.slow_probability) { faults.slow_ms } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_wrong_by_default() {
        let source = FaultSource::new(Faults::default(), 1);
        assert!((0..1_000).all(|_| source.draw() == Fate::default()));
    }

    #[test]
    fn the_same_seed_brings_the_same_fates() {
        let faults = Faults {
            fail_before_first_byte: 0.3,
            cut_probability: 0.3,
            cut_after_tokens: 5,
            slow_probability: 0.3,
            slow_ms: 7,
        };
        let draw = |seed| {
            let source = FaultSource::new(faults.clone(), seed);
            (0..100).map(|_| source.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(1).iter().any(|fate| fate.fails) && draw(1).iter().any(|fate| !fate.fails));
    }

    #[test]
    fn what_is_no_probability_is_refused_by_name() {
        for value in [-0.1, 1.1, f64::NAN] {
            let faults = Faults { cut_probability: value, ..Faults::default() };
            assert_eq!(faults.validate().unwrap_err().field, "cut_probability");
        }
    }
}
