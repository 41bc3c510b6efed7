//! What the bus in memory does wrong when asked to, repeatably.
//!
//! Rule 3 says that a bus may lose, delay, repeat and reorder; a receiver that copes is tested with a seed. Time is counted
//! in publications, so that nothing here needs a clock. Used by `delivery`.

/// How often a message on its way to one receiver meets each fate; the sum may be at most 1. Default: never.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BusFaults {
    /// Share of messages lost, 0 to 1. Questions and answers are lost at this rate too.
    pub lose: f64,
    /// Share delivered twice, 0 to 1.
    pub repeat: f64,
    /// Share at which the way to the receiver stalls, 0 to 1: this message and those behind it come late, in order.
    pub delay: f64,
    /// Share that is overtaken by later messages, 0 to 1.
    pub reorder: f64,
    /// For how many later publications a late or overtaken message waits at most; the number is drawn. 0 counts as 1.
    pub span: u32,
}

/// What happens to one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Deliver,
    Lose,
    Repeat,
    /// Waits for so many publications, and all that follow wait with it.
    Delay(u64),
    /// Waits alone for so many publications.
    Reorder(u64),
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
        let BusFaults { lose, repeat, delay, reorder, .. } = self.faults;
        let toss = self.uniform();
        if toss < lose {
            Fate::Lose
        } else if toss < lose + repeat {
            Fate::Repeat
        } else if toss < lose + repeat + delay {
            Fate::Delay(self.wait())
        } else if toss < lose + repeat + delay + reorder {
            Fate::Reorder(self.wait())
        } else {
            Fate::Deliver
        }
    }

    /// From 1 to the span.
    fn wait(&mut self) -> u64 {
        let span = f64::from(self.faults.span.max(1));
        // At most the span, which came from a u32.
        1 + (self.uniform() * span) as u64
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
        let faults = BusFaults { lose: 0.1, repeat: 0.15, delay: 0.2, reorder: 0.25, span: 4 };
        assert_eq!(fates(faults, 7), fates(faults, 7));
        assert_ne!(fates(faults, 7), fates(faults, 8));
        let kind = |fate: &Fate| match fate {
            Fate::Lose => 0,
            Fate::Repeat => 1,
            Fate::Delay(_) => 2,
            Fate::Reorder(_) => 3,
            Fate::Deliver => 4,
        };
        for (index, rate) in [1_000_usize, 1_500, 2_000, 2_500, 3_000].into_iter().enumerate() {
            let count = fates(faults, 7).iter().filter(|fate| kind(fate) == index).count();
            assert!(count.abs_diff(rate) < 300, "{index}: {count}");
        }
    }

    #[test]
    fn waits_cover_the_span_and_no_more() {
        for (span, most) in [(0, 1), (1, 1), (4, 4)] {
            let faults = BusFaults { reorder: 1.0, span, ..BusFaults::default() };
            let waits: std::collections::BTreeSet<u64> = fates(faults, 3)
                .into_iter()
                .map(|fate| if let Fate::Reorder(wait) = fate { wait } else { 0 })
                .collect();
            assert_eq!(waits, (1..=most).collect());
        }
    }

    #[test]
    fn by_default_everything_is_delivered() {
        assert!(fates(BusFaults::default(), 1).into_iter().all(|fate| fate == Fate::Deliver));
    }
}
