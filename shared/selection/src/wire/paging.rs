//! Cutting what a worker sends into payloads that the bus takes. Sizes are computed, not tried.

use super::{
    BATCH_EVENTS_MAX, CHUNKS_MAX, EVENTS_MAX, RUNS_MAX,
    events::{batch_header, event_to_wire, run_to_wire},
};
use bytes::Bytes;
use switchtower_ids::{Incarnation, Row};
use switchtower_kv::event::{SequencedEvent, Snapshot, SnapshotRun};
use switchtower_proto::{Message, v1};

/// Payloads of ranges and snapshots are no larger, even where the bus takes more: others want to be heard between them.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// What a message takes beside its parts, at most: version, names, numbers, and the length of what holds the parts.
pub(super) const ENVELOPE_BYTES_MAX: usize = 64;

/// What a run takes beside its blocks, at most: its key and length, tier, parent, and the key and length of the blocks.
const RUN_BYTES_MAX: usize = 32;

/// Events as payloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedBatches {
    /// The payloads and how many events are in each.
    pub batches: Vec<(Bytes, usize)>,
    /// Events that do not fit into any payload.
    pub too_large: usize,
}

/// Puts events of one row into as few batches of at most `limit` bytes as there can be.
#[must_use]
pub fn encode_batches(
    row: Row,
    incarnation: Incarnation,
    events: &[SequencedEvent],
    limit: usize,
) -> EncodedBatches {
    let room = Room { bytes: limit.saturating_sub(ENVELOPE_BYTES_MAX), parts: BATCH_EVENTS_MAX };
    let mut encoded = EncodedBatches::default();
    let mut page = Page::new(room);
    for event in events.iter().map(event_to_wire) {
        let Err(event) = page.add(event) else { continue };
        encoded.push(row, incarnation, page.take());
        if page.add(event).is_err() {
            encoded.too_large += 1;
        }
    }
    encoded.push(row, incarnation, page.take());
    encoded
}

impl EncodedBatches {
    fn push(&mut self, row: Row, incarnation: Incarnation, events: Vec<v1::KvEvent>) {
        if !events.is_empty() {
            let count = events.len();
            let batch = v1::KvEventBatch { events, ..batch_header(row, incarnation) };
            self.batches.push((batch.encode_to_vec().into(), count));
        }
    }
}

/// The reply with as many of the events as fit into `limit` bytes; `None` if not even the first one does.
pub(super) fn encode_range(events: &[SequencedEvent], last: u64, limit: usize) -> Option<Bytes> {
    let mut page = Page::new(Room::of_page(limit, EVENTS_MAX));
    let fits = events.iter().map(event_to_wire).map_while(|event| page.add(event).ok()).count();
    if fits == 0 && !events.is_empty() {
        return None;
    }
    let answer = v1::range_reply::Answer::Events(v1::EventRange { events: page.take(), last });
    Some(encode_reply(answer))
}

/// The snapshot as replies of at most `limit` bytes, in order; `None` if the limit is so small that there would be too
/// many.
pub(super) fn encode_snapshot(number: u64, snapshot: &Snapshot, limit: usize) -> Option<Vec<Bytes>> {
    let room = Room::of_page(limit, RUNS_MAX);
    let blocks_max = room.bytes.checked_sub(RUN_BYTES_MAX)? / size_of::<u64>();
    if blocks_max == 0 {
        return None;
    }
    let mut page = Page::new(room);
    let mut pages = Vec::new();
    for run in snapshot.blocks.iter().flat_map(|run| pieces(run, blocks_max)) {
        if let Err(run) = page.add(run) {
            pages.push(page.take());
            page.add(run).ok()?;
        }
    }
    pages.push(page.take());
    let chunks = u32::try_from(pages.len()).ok().filter(|chunks| *chunks <= CHUNKS_MAX)?;
    let chunk =
        |(index, runs)| v1::SnapshotChunk { snapshot: number, index, chunks, sequence: snapshot.seq, runs };
    let chunks = (0..).zip(pages).map(chunk);
    Some(chunks.map(|chunk| encode_reply(v1::range_reply::Answer::Snapshot(chunk))).collect())
}

fn encode_reply(answer: v1::range_reply::Answer) -> Bytes {
    v1::RangeReply { major: v1::MAJOR, answer: Some(answer) }.encode_to_vec().into()
}

/// The run in pieces of at most `blocks_max` blocks, each of which continues the one before it.
fn pieces(run: &SnapshotRun, blocks_max: usize) -> impl Iterator<Item = v1::SnapshotRun> {
    run.blocks.chunks(blocks_max).enumerate().map(move |(at, blocks)| {
        let parent = if at == 0 { run.parent } else { run.blocks.get(at * blocks_max - 1).copied() };
        run_to_wire(run.tier, parent, blocks)
    })
}

/// What the parts of one message may take.
#[derive(Clone, Copy)]
struct Room {
    bytes: usize,
    parts: usize,
}

impl Room {
    fn of_page(limit: usize, parts: usize) -> Self {
        Self { bytes: limit.min(PAGE_BYTES_MAX).saturating_sub(ENVELOPE_BYTES_MAX), parts }
    }
}

/// Parts of one message that is being filled.
struct Page<T> {
    room: Room,
    parts: Vec<T>,
    bytes: usize,
}

impl<T: Message> Page<T> {
    fn new(room: Room) -> Self {
        Self { room, parts: Vec::new(), bytes: 0 }
    }

    /// Adds a part, or gives it back if there is no room. All parts are in fields below 16, so a key is one byte.
    fn add(&mut self, part: T) -> Result<(), T> {
        let length = part.encoded_len();
        let bytes = self.bytes + 1 + switchtower_proto::length_delimiter_len(length) + length;
        if self.parts.len() == self.room.parts || bytes > self.room.bytes {
            return Err(part);
        }
        self.bytes = bytes;
        self.parts.push(part);
        Ok(())
    }

    fn take(&mut self) -> Vec<T> {
        self.bytes = 0;
        std::mem::take(&mut self.parts)
    }
}
