//! The KV event log as it travels: what one rank of one worker's life says about its cache.
//!
//! Only shapes live here. [`crate::publisher`] makes the log, [`crate::cursor`] orders it, [`crate::index`] applies it.
//!
//! One log exists per (worker, incarnation, rank). Its events are numbered 1, 2, 3 … without holes. At every
//! number the blocks it describes are *prefix-closed over the union of tiers*: a block is in some tier only while
//! its parent is in some tier (not necessarily the same one).

use serde::{Deserialize, Serialize};
use switchtower_ids::{Incarnation, Row, SequenceHash, Tier};

/// One change of one rank's cache. An event is atomic: its blocks are taken together, or it is refused whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum KvEvent {
    /// `blocks` are now in `tier`. They are a chain: the first continues `parent`, each other its predecessor.
    /// Storing what is already there changes nothing (set semantics, never counted copies).
    Stored {
        /// Where the blocks are now.
        tier: Tier,
        /// The block before the first one; `None` when the chain starts at the prompt's first token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<SequenceHash>,
        /// The chain, in prompt order.
        blocks: Vec<SequenceHash>,
    },
    /// `blocks` are no longer in `tier`. Removing what is not there changes nothing.
    Removed {
        /// The tier that lost the blocks.
        tier: Tier,
        /// The blocks, in any order.
        blocks: Vec<SequenceHash>,
    },
    /// Every tier of this rank is empty now. Other ranks of the worker are not meant.
    Cleared,
    /// A kind this version does not know. It keeps its number, so that the log stays without holes; the index
    /// counts and ignores it.
    #[serde(other)]
    Unknown,
}

impl KvEvent {
    /// How many blocks the event names.
    #[must_use]
    pub fn block_count(&self) -> usize {
        match self {
            Self::Stored { blocks, .. } | Self::Removed { blocks, .. } => blocks.len(),
            Self::Cleared | Self::Unknown => 0,
        }
    }
}

/// An event and its number in its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequencedEvent {
    /// Counts 1, 2, 3 … in one log.
    pub seq: u64,
    /// What changed.
    pub event: KvEvent,
}

/// What one rank sends at a time: some events of its log, usually consecutive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventBatch {
    /// Whose cache it is.
    pub row: Row,
    /// Which life of the worker speaks.
    pub incarnation: Incarnation,
    /// The events.
    pub events: Vec<SequencedEvent>,
}

/// A chain of blocks in one tier, as snapshots and dumps carry it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRun {
    /// Where the blocks are.
    pub tier: Tier,
    /// The block before the first one; `None` at the prompt's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SequenceHash>,
    /// The chain, in prompt order; at most [`SnapshotRun::MAX_BLOCKS`] when this crate made it.
    pub blocks: Vec<SequenceHash>,
}

impl SnapshotRun {
    /// Longer chains are cut into several runs, so that a snapshot can be sent in chunks of whole runs.
    pub const MAX_BLOCKS: usize = 1024;
}

impl From<SnapshotRun> for KvEvent {
    fn from(SnapshotRun { tier, parent, blocks }: SnapshotRun) -> Self {
        Self::Stored { tier, parent, blocks }
    }
}

/// Everything one rank holds after event `seq` of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The last event the snapshot includes; 0 before the first.
    pub seq: u64,
    /// The blocks, parents before children. A block in several tiers is named once per tier.
    pub blocks: Vec<SnapshotRun>,
}

/// What a publisher answers when asked for the events from some number on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RangeAnswer {
    /// Every event from that number to the newest. Empty when there is none yet.
    Events {
        /// In order, without holes.
        events: Vec<SequencedEvent>,
    },
    /// The events are no longer kept: take this state instead and go on after it.
    TooOld {
        /// The publisher's state now.
        snapshot: Snapshot,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_travel_as_tagged_json() {
        let event = KvEvent::Stored { tier: Tier::Host, parent: None, blocks: vec![SequenceHash(u64::MAX)] };
        let text = serde_json::to_string(&SequencedEvent { seq: 1, event }).unwrap();
        assert_eq!(
            text,
            r#"{"seq":1,"event":{"kind":"stored","tier":"host","blocks":[18446744073709551615]}}"#
        );
        assert!(serde_json::from_str::<SequencedEvent>(&text).is_ok());
    }

    #[test]
    fn b32_an_unknown_kind_keeps_its_number_and_spares_the_rest_of_the_batch() {
        let text = r#"{"row":{"worker":1,"rank":0},"incarnation":5,"events":[
            {"seq":1,"event":{"kind":"teleported","where":["moon"]}},
            {"seq":2,"event":{"kind":"cleared"}}]}"#;
        let batch: EventBatch = serde_json::from_str(text).unwrap();
        assert_eq!(batch.events[0], SequencedEvent { seq: 1, event: KvEvent::Unknown });
        assert_eq!(batch.events[1], SequencedEvent { seq: 2, event: KvEvent::Cleared });
    }
}
