//! Why an event or a snapshot was refused, and how often: the typed outcome of everything the index does not take.

use switchtower_ids::SequenceHash;

/// An event that contradicts what is known or what the log promises. It was refused whole: nothing changed
/// (a refused *snapshot* leaves its row empty, see [`super::PrefixIndex::replace`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A stored chain continues a block that the row does not hold.
    #[error("parent block {:016x} is not held by this row: ask its publisher for a snapshot", .parent.0)]
    UnknownParent {
        /// The missing block.
        parent: SequenceHash,
    },
    /// A block is known after another parent, or at another depth: equal sequence hashes mean equal prefixes.
    #[error("block {:016x} is known after another parent: check that all engines hash blocks alike", .block.0)]
    ParentConflict {
        /// The block.
        block: SequenceHash,
    },
    /// A stored chain names a block twice.
    #[error("block {:016x} appears twice in one stored chain: check the publisher", .block.0)]
    Repeated {
        /// The block.
        block: SequenceHash,
    },
    /// A block would leave its last tier while a child of it stays.
    #[error("block {:016x} is removed before its children: check the publisher", .block.0)]
    HasChildren {
        /// The block.
        block: SequenceHash,
    },
    /// The slot's number is not below the limit.
    #[error("row slot {slot} is not below the limit of {limit}: raise the limit or reuse slots")]
    SlotOutOfRange {
        /// The slot.
        slot: u32,
        /// [`super::IndexLimits::rows`].
        limit: u32,
    },
    /// The index is full.
    #[error("the index holds its limit of {limit} distinct blocks: raise the limit")]
    Full {
        /// [`super::IndexLimits::blocks`].
        limit: usize,
    },
    /// The event is of a kind that this version does not know.
    #[error("an event of unknown kind was ignored: update the router")]
    UnknownKind,
}

/// [`Refused`] without its values: what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// [`Refused::UnknownParent`]
    UnknownParent,
    /// [`Refused::ParentConflict`]
    ParentConflict,
    /// [`Refused::Repeated`]
    Repeated,
    /// [`Refused::HasChildren`]
    HasChildren,
    /// [`Refused::SlotOutOfRange`]
    SlotOutOfRange,
    /// [`Refused::Full`]
    Full,
    /// [`Refused::UnknownKind`]
    UnknownKind,
}

impl Refused {
    /// The reason alone.
    #[must_use]
    pub const fn reason(&self) -> RefusalReason {
        match self {
            Self::UnknownParent { .. } => RefusalReason::UnknownParent,
            Self::ParentConflict { .. } => RefusalReason::ParentConflict,
            Self::Repeated { .. } => RefusalReason::Repeated,
            Self::HasChildren { .. } => RefusalReason::HasChildren,
            Self::SlotOutOfRange { .. } => RefusalReason::SlotOutOfRange,
            Self::Full { .. } => RefusalReason::Full,
            Self::UnknownKind => RefusalReason::UnknownKind,
        }
    }
}

impl RefusalReason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::UnknownParent,
        Self::ParentConflict,
        Self::Repeated,
        Self::HasChildren,
        Self::SlotOutOfRange,
        Self::Full,
        Self::UnknownKind,
    ];

    /// The reason's name in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::UnknownParent => "unknown_parent",
            Self::ParentConflict => "parent_conflict",
            Self::Repeated => "repeated",
            Self::HasChildren => "has_children",
            Self::SlotOutOfRange => "slot_out_of_range",
            Self::Full => "full",
            Self::UnknownKind => "unknown_kind",
        }
    }
}

/// Refusals since the index was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusalCounts {
    events: [u64; RefusalReason::ALL.len()],
    blocks: [u64; RefusalReason::ALL.len()],
}

impl RefusalCounts {
    pub(super) fn count(&mut self, reason: RefusalReason, blocks: usize) {
        self.events[reason as usize] += 1;
        self.blocks[reason as usize] += blocks as u64;
    }

    /// Refused events (and snapshot runs) with this reason.
    #[must_use]
    pub fn events(&self, reason: RefusalReason) -> u64 {
        self.events[reason as usize]
    }

    /// The blocks they named.
    #[must_use]
    pub fn blocks(&self, reason: RefusalReason) -> u64 {
        self.blocks[reason as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_listed_in_the_order_in_which_they_are_counted() {
        for (at, reason) in RefusalReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at, "{}", reason.label());
        }
    }
}
