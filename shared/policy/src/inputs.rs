//! Which groups of per-row signals a component reads.

use std::ops::{BitOr, BitOrAssign};

/// A set of signal groups. The host computes the union that a policy asks for and nothing else, and every
/// component sees only the groups that it asked for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkerInputs(u8);

impl WorkerInputs {
    /// Identity and accumulated cost only.
    pub const NONE: Self = Self(0);
    /// Effective, device, host, disk and shared-cache overlap, in blocks.
    pub const CACHE: Self = Self(1);
    /// Raw prefill blocks, active prefill tokens, decode cost blocks, active requests.
    pub const LOAD: Self = Self(2);
    /// Preferred-taint cost multiplier.
    pub const ROUTING: Self = Self(4);
    /// Every group.
    pub(crate) const ALL: Self = Self::CACHE.union(Self::LOAD).union(Self::ROUTING);

    /// Whether every group of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The groups of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The groups that both sets have.
    pub(crate) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for WorkerInputs {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for WorkerInputs {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

#[cfg(test)]
mod tests {
    use super::WorkerInputs;

    #[test]
    fn sets_combine_and_contain() {
        let both = WorkerInputs::CACHE | WorkerInputs::LOAD;
        assert!(both.contains(WorkerInputs::CACHE) && both.contains(WorkerInputs::NONE));
        assert!(!both.contains(WorkerInputs::ROUTING));
        assert!(!WorkerInputs::LOAD.contains(both));
    }
}
