//! The seeded generator that breaks ties and draws rows. The seed is all the randomness there is: the same seed, names
//! and calls give the same numbers. Not for secrets. Pickers own one each.

use switchtower_policy::{KvRouterConfig, RoutingPartitionRef};

/// `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014): one addition and one mix per number, a period of 2^64.
#[derive(Clone, Debug)]
pub struct Generator {
    state: u64,
}

impl Generator {
    /// The generator of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The generator of one policy: the configured seed mixed with the partition's name and stage, so that partitions
    /// do not draw in step.
    #[must_use]
    pub fn for_partition(
        config: &KvRouterConfig,
        worker_type: &str,
        partition: RoutingPartitionRef<'_>,
    ) -> Self {
        let name = name_hash([partition.model_name(), partition.routing_group(), worker_type]);
        Self::new(mix(config.seed) ^ name)
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// A number from 0 to below `bound`, or 0 if `bound` is 0. Uniform to one part in 2^64 / `bound`.
    pub const fn below(&mut self, bound: usize) -> usize {
        let product = self.bits() as u128 * bound as u128;
        (product >> 64) as usize
    }

    /// A number from 0 to below 1, a multiple of 2^-53.
    pub const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Spreads every bit of `value` over all 64.
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// FNV-1a over the parts, each closed by a byte that UTF-8 never holds, so that ("a", "bc") is not ("ab", "c").
pub(crate) fn name_hash<const PARTS: usize>(parts: [&str; PARTS]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xFF]));
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut generator = Generator::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([(); 3].map(|()| generator.bits()), expected);
    }

    #[test]
    fn draws_stay_in_range_and_cover_it() {
        let mut generator = Generator::new(3);
        let mut counts = [0_u32; 5];
        for _ in 0..5_000 {
            counts[generator.below(5)] += 1;
            assert!((0.0..1.0).contains(&generator.unit()));
        }
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
        assert_eq!((generator.below(0), generator.below(1)), (0, 0));
    }

    #[test]
    fn seed_model_group_and_stage_each_change_the_stream() {
        let first = |seed, model, group, stage| {
            let config = KvRouterConfig { seed, ..KvRouterConfig::default() };
            Generator::for_partition(&config, stage, RoutingPartitionRef::new(model, group)).bits()
        };
        let base = first(1, "ab", "c", "decode");
        assert_eq!(base, first(1, "ab", "c", "decode"));
        for other in [
            first(2, "ab", "c", "decode"),
            first(1, "a", "bc", "decode"),
            first(1, "ab", "d", "decode"),
            first(1, "ab", "c", "prefill"),
        ] {
            assert_ne!(base, other);
        }
    }
}
