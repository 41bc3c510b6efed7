//! The set of tiers in which one row holds one block: three bits.
//!
//! Used by the publisher, the index and the snapshots between them; nothing outside this crate sees it.

use switchtower_ids::Tier;

/// A set of tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tiers(u8);

impl Tiers {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const DEVICE: Self = Self::only(Tier::Device);
    /// How many bits [`Tiers::bits`] uses.
    pub(crate) const BITS: u32 = Tier::ALL.len() as u32;

    pub(crate) const fn only(tier: Tier) -> Self {
        Self(1 << tier.index())
    }

    pub(crate) const fn contains(self, tier: Tier) -> bool {
        self.0 & Self::only(tier).0 != 0
    }

    pub(crate) const fn with(self, tier: Tier) -> Self {
        Self(self.0 | Self::only(tier).0)
    }

    pub(crate) const fn without(self, tier: Tier) -> Self {
        Self(self.0 & !Self::only(tier).0)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Every tier of the set, fastest first.
    pub(crate) fn iter(self) -> impl Iterator<Item = Tier> {
        Tier::ALL.into_iter().filter(move |tier| self.contains(*tier))
    }

    /// The fastest tier of the set.
    pub(crate) fn best(self) -> Option<Tier> {
        self.iter().next()
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// The set with these lowest [`Tiers::BITS`] bits; higher ones are cut off.
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self((bits & ((1 << Self::BITS) - 1)) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_tier_is_the_fastest_one() {
        let tiers = Tiers::only(Tier::Disk).with(Tier::Host);
        assert_eq!(tiers.best(), Some(Tier::Host));
        assert_eq!(tiers.without(Tier::Host).best(), Some(Tier::Disk));
        assert_eq!(Tiers::NONE.best(), None);
        assert_eq!(Tiers::from_bits(tiers.bits()), tiers);
    }
}
