//! What the bus in memory does wrong when asked to, repeatably.
//!
//! Rule 3 says that a bus may lose, repeat and reorder; a receiver that copes is tested with a seed. Used by `bus`.

/// How often a published message meets each fate; the sum may be at most 1. Default: never.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BusFaults {
    /// Share of messages lost, 0 to 1. Requests are lost at this rate too.
    pub lose: f64,
    /// Share delivered twice, 0 to 1.
    pub repeat: f64,
    /// Share held back and delivered after the next message, 0 to 1.
    pub delay: f64,
}

/// What happens to one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Deliver,
    Lose,
    Repeat,
    Delay,
}

/// Draws fates from a seed.
pub(super) struct FateDraw {
    faults: BusFaults,
    /// State of a SplitMix64 generator (Steele, Lea and Flood, 2014): enough for coin tosses, and no dependency.
    state: u64,
}

impl FateDraw {
    pub(super) const fn new(faults: BusFaults, seed: u64) -> Self {
        Self { faults, state: seed }
    }

    pub(super) fn draw(&mut self) -> Fate {
        let BusFaults { lose, repeat, delay } = self.faults;
        let toss = self.uniform();
        if toss < lose {
            Fate::Lose
        } else if toss < lose + repeat {
            Fate::Repeat
        } else if toss < lose + repeat + delay {
            Fate::Delay
        } else {
            Fate::Deliver
        }
    }

    /// Uniform in [0, 1).
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        // 53 bits are what a f64 holds exactly.
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(faults: BusFaults, seed: u64) -> Vec<Fate> {
        let mut draw = FateDraw::new(faults, seed);
        (0..10_000).map(|_| draw.draw()).collect()
    }

    #[test]
    fn fates_repeat_with_their_seed_and_come_at_their_rates() {
        let faults = BusFaults { lose: 0.1, repeat: 0.2, delay: 0.3 };
        assert_eq!(fates(faults, 7), fates(faults, 7));
        assert_ne!(fates(faults, 7), fates(faults, 8));
        for (fate, rate) in
            [(Fate::Lose, 1_000), (Fate::Repeat, 2_000), (Fate::Delay, 3_000), (Fate::Deliver, 4_000)]
        {
            let count = fates(faults, 7).into_iter().filter(|drawn| *drawn == fate).count();
            assert!(count.abs_diff(rate) < 300, "{fate:?}: {count}");
        }
    }

    #[test]
    fn by_default_everything_is_delivered() {
        assert!(fates(BusFaults::default(), 1).into_iter().all(|fate| fate == Fate::Deliver));
    }
}
