//! KV events between the wire and the log of `kv`.

use super::{
    EVENTS_MAX,
    message::{PartLimit, WireError, WireMessage},
};
use switchtower_ids::{Incarnation, Rank, Row, SequenceHash, Tier, WorkerId};
use switchtower_kv::event::{EventBatch, KvEvent, SequencedEvent, SnapshotRun};
use switchtower_proto::v1::{self, kv_event::Change};

impl WireMessage for EventBatch {
    type Generated = v1::KvEventBatch;
    const KIND: &'static str = "KvEventBatch";
    const LIMITS: &'static [PartLimit] = &[PartLimit { parts: "events", path: &[5], limit: EVENTS_MAX }];

    fn to_generated(&self) -> v1::KvEventBatch {
        let events = self.events.iter().map(event_to_wire).collect();
        v1::KvEventBatch { events, ..batch_header(self.row, self.incarnation) }
    }

    fn from_generated(batch: v1::KvEventBatch) -> Result<Self, WireError> {
        Ok(Self {
            row: Row { worker: WorkerId(batch.worker_id), rank: Rank(batch.rank) },
            incarnation: Incarnation(batch.incarnation),
            events: events_from_wire(batch.events, Self::KIND)?,
        })
    }
}

/// A batch without events.
pub(super) fn batch_header(row: Row, incarnation: Incarnation) -> v1::KvEventBatch {
    v1::KvEventBatch {
        major: v1::MAJOR,
        worker_id: row.worker.0,
        rank: row.rank.0,
        incarnation: incarnation.0,
        events: Vec::new(),
    }
}

pub(super) fn event_to_wire(event: &SequencedEvent) -> v1::KvEvent {
    let change = match &event.event {
        KvEvent::Stored { tier, parent, blocks } => Some(Change::Stored(v1::Stored {
            tier: tier_to_wire(*tier),
            parent: parent.map(|parent| parent.0),
            blocks: blocks_to_wire(blocks),
        })),
        KvEvent::Removed { tier, blocks } => {
            let (tier, blocks) = (tier_to_wire(*tier), blocks_to_wire(blocks));
            Some(Change::Removed(v1::Removed { tier, blocks }))
        }
        KvEvent::Cleared => Some(Change::Cleared(v1::Cleared {})),
        KvEvent::Unknown => None,
    };
    v1::KvEvent { sequence: event.seq, change }
}

pub(super) fn events_from_wire(
    events: Vec<v1::KvEvent>,
    kind: &'static str,
) -> Result<Vec<SequencedEvent>, WireError> {
    events.into_iter().map(|event| event_from_wire(event, kind)).collect()
}

/// A change of a kind, or in a tier, that this release does not know is [`KvEvent::Unknown`]: its number counts.
fn event_from_wire(event: v1::KvEvent, kind: &'static str) -> Result<SequencedEvent, WireError> {
    let seq = event.sequence;
    if seq == 0 {
        return Err(WireError::malformed(kind, "an event has number 0: they count from 1"));
    }
    let event = match event.change {
        Some(Change::Stored(v1::Stored { tier, parent, blocks })) => {
            tier_from_wire(tier, kind)?.map(|tier| KvEvent::Stored {
                tier,
                parent: parent.map(SequenceHash),
                blocks: blocks_from_wire(blocks),
            })
        }
        Some(Change::Removed(v1::Removed { tier, blocks })) => tier_from_wire(tier, kind)?
            .map(|tier| KvEvent::Removed { tier, blocks: blocks_from_wire(blocks) }),
        Some(Change::Cleared(v1::Cleared {})) => Some(KvEvent::Cleared),
        None => None,
    };
    Ok(SequencedEvent { seq, event: event.unwrap_or(KvEvent::Unknown) })
}

pub(super) fn run_to_wire(
    tier: Tier,
    parent: Option<SequenceHash>,
    blocks: &[SequenceHash],
) -> v1::SnapshotRun {
    v1::SnapshotRun {
        tier: tier_to_wire(tier),
        parent: parent.map(|parent| parent.0),
        blocks: blocks_to_wire(blocks),
    }
}

/// `None` for a run in a tier that this release does not know: nothing is routed by it.
pub(super) fn run_from_wire(
    run: v1::SnapshotRun,
    kind: &'static str,
) -> Result<Option<SnapshotRun>, WireError> {
    let v1::SnapshotRun { tier, parent, blocks } = run;
    let run = |tier| SnapshotRun { tier, parent: parent.map(SequenceHash), blocks: blocks_from_wire(blocks) };
    Ok(tier_from_wire(tier, kind)?.map(run))
}

/// `None` for a tier that this release does not know.
fn tier_from_wire(tier: i32, kind: &'static str) -> Result<Option<Tier>, WireError> {
    match v1::Tier::try_from(tier) {
        Ok(v1::Tier::Device) => Ok(Some(Tier::Device)),
        Ok(v1::Tier::Host) => Ok(Some(Tier::Host)),
        Ok(v1::Tier::Disk) => Ok(Some(Tier::Disk)),
        Ok(v1::Tier::Unspecified) => Err(WireError::malformed(kind, "blocks are in no tier: set `tier`")),
        Err(_) => Ok(None),
    }
}

fn tier_to_wire(tier: Tier) -> i32 {
    let tier = match tier {
        Tier::Device => v1::Tier::Device,
        Tier::Host => v1::Tier::Host,
        Tier::Disk => v1::Tier::Disk,
    };
    tier.into()
}

fn blocks_to_wire(blocks: &[SequenceHash]) -> Vec<u64> {
    blocks.iter().map(|block| block.0).collect()
}

/// Reuses the memory.
fn blocks_from_wire(blocks: Vec<u64>) -> Vec<SequenceHash> {
    blocks.into_iter().map(SequenceHash).collect()
}
