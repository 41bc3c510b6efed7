//! The answering side of a worker's log: ranges, and snapshots that are pulled chunk by chunk. Knows no clock and sends
//! nothing: whoever holds the bus brings the questions, the time, and takes the answers there.

use super::{
    EVENTS_MAX, RangeReply, RangeRequest, RangeWanted, Refusal, encode,
    paging::{encode_range, encode_snapshot},
};
use bytes::Bytes;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};
use switchtower_ids::Rank;
use switchtower_kv::{
    event::{SequencedEvent, Snapshot},
    publisher::Publisher,
};

/// One rank's log, as questions need it.
pub trait RankLog {
    /// The number of the newest event; 0 before the first.
    fn last(&self) -> u64;

    /// At most `most` events from number `from` on; `None` if some of them are no longer kept.
    fn events_from(&self, from: u64, most: usize) -> Option<Vec<SequencedEvent>>;

    /// Everything that the rank holds now.
    fn snapshot(&self) -> Snapshot;
}

impl RankLog for Publisher {
    fn last(&self) -> u64 {
        self.last_seq()
    }

    fn events_from(&self, from: u64, most: usize) -> Option<Vec<SequencedEvent>> {
        self.events_from(from, most)
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshot()
    }
}

/// A snapshot that is being pulled, as payloads.
struct Kept {
    number: u64,
    seq: u64,
    chunks: Vec<Bytes>,
    used: Instant,
}

/// Answers questions about the logs of one life of a worker. Keeps at most one snapshot per rank, and that only while
/// somebody pulls it: several routers that start at once share it.
#[derive(Default)]
pub struct RangeAnswers {
    kept: HashMap<Rank, Kept>,
    snapshots: u64,
}

impl RangeAnswers {
    /// How long a snapshot is kept after its last use.
    pub const HOLD: Duration = Duration::from_secs(30);

    /// The answer to `request`, of at most `limit` bytes, from the log of its rank: `None` if there is no such rank.
    pub fn answer(
        &mut self,
        request: RangeRequest,
        log: Option<&impl RankLog>,
        limit: usize,
        now: Instant,
    ) -> Bytes {
        self.expire(now);
        let Some(log) = log else { return refused(Refusal::NoSuchRank) };
        let rank = request.rank;
        let answer = match request.wanted {
            RangeWanted::Events { from } => log
                .events_from(from, EVENTS_MAX)
                .and_then(|events| encode_range(&events, log.last(), limit))
                .or_else(|| self.state(rank, from.saturating_sub(1), log, Bounds { limit, now })),
            RangeWanted::State { after } => self.state(rank, after, log, Bounds { limit, now }),
            RangeWanted::Chunk { snapshot, index } => {
                Some(self.chunk(rank, snapshot, index, now).unwrap_or_else(|| refused(Refusal::SnapshotGone)))
            }
            RangeWanted::Unknown => None,
        };
        answer.unwrap_or_else(|| refused(Refusal::NotUnderstood))
    }

    /// Forgets the snapshots that nobody has used for long. Call it now and then while no questions come.
    pub fn expire(&mut self, now: Instant) {
        self.kept.retain(|_, kept| now.saturating_duration_since(kept.used) < Self::HOLD);
    }

    /// The first chunk of a state that includes event `after`: of the one that is kept, or of a new one.
    fn state(&mut self, rank: Rank, after: u64, log: &impl RankLog, bounds: Bounds) -> Option<Bytes> {
        if let Some(kept) = self.kept.get_mut(&rank).filter(|kept| kept.seq >= after) {
            kept.used = bounds.now;
            return kept.chunks.first().cloned();
        }
        let snapshot = log.snapshot();
        self.snapshots += 1;
        let number = self.snapshots;
        let chunks = encode_snapshot(number, &snapshot, bounds.limit)?;
        let first = chunks.first().cloned();
        if chunks.len() > 1 {
            self.kept.insert(rank, Kept { number, seq: snapshot.seq, chunks, used: bounds.now });
        }
        first
    }

    fn chunk(&mut self, rank: Rank, snapshot: u64, index: u32, now: Instant) -> Option<Bytes> {
        let kept = self.kept.get_mut(&rank).filter(|kept| kept.number == snapshot)?;
        kept.used = now;
        kept.chunks.get(index as usize).cloned()
    }
}

#[derive(Clone, Copy)]
struct Bounds {
    limit: usize,
    now: Instant,
}

fn refused(refusal: Refusal) -> Bytes {
    encode(&RangeReply::Refused(refusal))
}
