//! Questions about a worker's log, and their answers.

use super::{
    CHUNKS_MAX, EVENTS_MAX, RUNS_MAX,
    events::{event_to_wire, events_from_wire, run_from_wire, run_to_wire},
    message::{PartLimit, WireError, WireMessage},
};
use switchtower_ids::Rank;
use switchtower_kv::event::{SequencedEvent, SnapshotRun};
use switchtower_proto::v1::{self, range_reply::Answer, range_request::Wanted, refusal::Reason};

/// Asks a worker for its log of one rank. Answered with a [`RangeReply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeRequest {
    /// Which rank's log.
    pub rank: Rank,
    /// What of it.
    pub wanted: RangeWanted,
}

/// What a [`RangeRequest`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeWanted {
    /// All events from this number on, from 1; the state where they are no longer kept.
    Events {
        /// The first event wanted.
        from: u64,
    },
    /// The whole state.
    State {
        /// The state includes at least the events up to this one.
        after: u64,
    },
    /// One more chunk of a state.
    Chunk {
        /// The snapshot, as its first chunk named it.
        snapshot: u64,
        /// Which chunk, from 0.
        index: u32,
    },
    /// Something that this release does not know.
    Unknown,
}

/// The answer to a [`RangeRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeReply {
    /// Events from the asked number on: all, or as many as fit. Whoever has fewer than `last` asks again.
    Events {
        /// In order, without holes.
        events: Vec<SequencedEvent>,
        /// The newest event of the log; 0 before the first.
        last: u64,
    },
    /// The state, or the first part of it.
    Snapshot(SnapshotChunk),
    /// Neither.
    Refused(Refusal),
}

/// A part of everything that a rank holds after event `seq`. Worth nothing before all are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotChunk {
    /// Names the snapshot within its rank and life.
    pub snapshot: u64,
    /// Which chunk this is, from 0.
    pub index: u32,
    /// Of how many: 1 to [`CHUNKS_MAX`].
    pub chunks: u32,
    /// The last event that the snapshot includes; 0 before the first.
    pub seq: u64,
    /// The blocks, parents before children over all chunks.
    pub runs: Vec<SnapshotRun>,
}

/// Why a worker answers neither with events nor with its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has no such rank.
    #[error("the worker has no such rank")]
    NoSuchRank,
    /// The snapshot is no longer kept.
    #[error("the worker no longer keeps this snapshot: ask for its state again")]
    SnapshotGone,
    /// It does not know what was asked for.
    #[error("the worker did not understand the question: check the versions of router and worker")]
    NotUnderstood,
    /// For a reason that this release does not know.
    #[error("the worker refused, for a reason that this release does not know")]
    Unknown,
}

impl WireMessage for RangeRequest {
    type Generated = v1::RangeRequest;
    const KIND: &'static str = "RangeRequest";
    const LIMITS: &'static [PartLimit] = &[];

    fn to_generated(&self) -> v1::RangeRequest {
        let wanted = match self.wanted {
            RangeWanted::Events { from } => Some(Wanted::EventsFrom(from)),
            RangeWanted::State { after } => Some(Wanted::StateAfter(after)),
            RangeWanted::Chunk { snapshot, index } => {
                Some(Wanted::Chunk(v1::ChunkRequest { snapshot, index }))
            }
            RangeWanted::Unknown => None,
        };
        v1::RangeRequest { major: v1::MAJOR, rank: self.rank.0, wanted }
    }

    fn from_generated(request: v1::RangeRequest) -> Result<Self, WireError> {
        let wanted = match request.wanted {
            Some(Wanted::EventsFrom(from)) => RangeWanted::Events { from },
            Some(Wanted::StateAfter(after)) => RangeWanted::State { after },
            Some(Wanted::Chunk(v1::ChunkRequest { snapshot, index })) => {
                RangeWanted::Chunk { snapshot, index }
            }
            None => RangeWanted::Unknown,
        };
        Ok(Self { rank: Rank(request.rank), wanted })
    }
}

impl WireMessage for RangeReply {
    type Generated = v1::RangeReply;
    const KIND: &'static str = "RangeReply";
    const LIMITS: &'static [PartLimit] = &[
        PartLimit { parts: "events", path: &[2, 1], limit: EVENTS_MAX },
        PartLimit { parts: "runs", path: &[3, 5], limit: RUNS_MAX },
    ];

    fn to_generated(&self) -> v1::RangeReply {
        let answer = match self {
            Self::Events { events, last } => {
                let events = events.iter().map(event_to_wire).collect();
                Answer::Events(v1::EventRange { events, last: *last })
            }
            Self::Snapshot(chunk) => Answer::Snapshot(v1::SnapshotChunk {
                snapshot: chunk.snapshot,
                index: chunk.index,
                chunks: chunk.chunks,
                sequence: chunk.seq,
                runs: chunk.runs.iter().map(|run| run_to_wire(run.tier, run.parent, &run.blocks)).collect(),
            }),
            Self::Refused(refusal) => Answer::Refusal(v1::Refusal { reason: refusal.to_wire() }),
        };
        v1::RangeReply { major: v1::MAJOR, answer: Some(answer) }
    }

    fn from_generated(reply: v1::RangeReply) -> Result<Self, WireError> {
        match reply.answer {
            Some(Answer::Events(v1::EventRange { events, last })) => {
                Ok(Self::Events { events: events_from_wire(events, Self::KIND)?, last })
            }
            Some(Answer::Snapshot(chunk)) => Ok(Self::Snapshot(chunk_from_wire(chunk, Self::KIND)?)),
            Some(Answer::Refusal(refusal)) => Ok(Self::Refused(Refusal::from_wire(refusal.reason))),
            None => Err(WireError::malformed(Self::KIND, "it answers in no way that this release knows")),
        }
    }
}

fn chunk_from_wire(chunk: v1::SnapshotChunk, kind: &'static str) -> Result<SnapshotChunk, WireError> {
    let v1::SnapshotChunk { snapshot, index, chunks, sequence, runs } = chunk;
    if !(1..=CHUNKS_MAX).contains(&chunks) || index >= chunks {
        let reason = format!("chunk {index} of {chunks}: there are 1 to {CHUNKS_MAX} chunks, counted from 0");
        return Err(WireError::malformed(kind, reason));
    }
    let runs = runs.into_iter().filter_map(|run| run_from_wire(run, kind).transpose());
    Ok(SnapshotChunk { snapshot, index, chunks, seq: sequence, runs: runs.collect::<Result<_, _>>()? })
}

impl Refusal {
    fn to_wire(self) -> i32 {
        let reason = match self {
            Self::NoSuchRank => Reason::NoSuchRank,
            Self::SnapshotGone => Reason::SnapshotGone,
            Self::NotUnderstood => Reason::NotUnderstood,
            Self::Unknown => Reason::Unspecified,
        };
        reason.into()
    }

    fn from_wire(reason: i32) -> Self {
        match Reason::try_from(reason) {
            Ok(Reason::NoSuchRank) => Self::NoSuchRank,
            Ok(Reason::SnapshotGone) => Self::SnapshotGone,
            Ok(Reason::NotUnderstood) => Self::NotUnderstood,
            Ok(Reason::Unspecified) | Err(_) => Self::Unknown,
        }
    }
}
