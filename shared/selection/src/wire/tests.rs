//! What is on the wire, byte for byte; that everything survives the way; that nothing that comes can do harm.

use super::{
    fields::Fields,
    paging::{ENVELOPE_BYTES_MAX, encode_range, encode_snapshot},
    *,
};
use proptest::{collection::vec, option, prelude::*};
use std::fmt::Debug;
use switchtower_ids::{Rank, Row, SequenceHash, Tier};
use switchtower_kv::event::{EventBatch, KvEvent, SequencedEvent, Snapshot, SnapshotRun};

fn hash() -> impl Strategy<Value = SequenceHash> {
    any::<u64>().prop_map(SequenceHash)
}

fn tier() -> impl Strategy<Value = Tier> {
    prop::sample::select(&Tier::ALL[..])
}

fn event() -> impl Strategy<Value = KvEvent> {
    let blocks = || vec(hash(), 0..20);
    prop_oneof![
        (tier(), option::of(hash()), blocks()).prop_map(|(tier, parent, blocks)| KvEvent::Stored {
            tier,
            parent,
            blocks
        }),
        (tier(), blocks()).prop_map(|(tier, blocks)| KvEvent::Removed { tier, blocks }),
        Just(KvEvent::Cleared),
        Just(KvEvent::Unknown),
    ]
}

fn events() -> impl Strategy<Value = Vec<SequencedEvent>> {
    vec((1..u64::MAX, event()).prop_map(|(seq, event)| SequencedEvent { seq, event }), 0..20)
}

fn run() -> impl Strategy<Value = SnapshotRun> {
    let parts = (tier(), option::of(hash()), vec(hash(), 1..40));
    parts.prop_map(|(tier, parent, blocks)| SnapshotRun { tier, parent, blocks })
}

fn batch() -> impl Strategy<Value = EventBatch> {
    let row = (any::<u64>(), any::<u32>()).prop_map(|(worker, rank)| Row::new(worker, rank));
    (row, any::<u64>().prop_map(Incarnation), events()).prop_map(|(row, incarnation, events)| EventBatch {
        row,
        incarnation,
        events,
    })
}

fn request() -> impl Strategy<Value = RangeRequest> {
    let wanted = prop_oneof![
        any::<u64>().prop_map(|from| RangeWanted::Events { from }),
        any::<u64>().prop_map(|after| RangeWanted::State { after }),
        (any::<u64>(), any::<u32>()).prop_map(|(snapshot, index)| RangeWanted::Chunk { snapshot, index }),
        Just(RangeWanted::Unknown),
    ];
    (any::<u32>().prop_map(Rank), wanted).prop_map(|(rank, wanted)| RangeRequest { rank, wanted })
}

fn reply() -> impl Strategy<Value = RangeReply> {
    let refusals = [Refusal::NoSuchRank, Refusal::SnapshotGone, Refusal::NotUnderstood, Refusal::Unknown];
    let chunk = (any::<u64>(), 1..=CHUNKS_MAX, any::<u32>(), any::<u64>(), vec(run(), 0..9));
    let chunk = chunk.prop_map(|(snapshot, chunks, index, seq, runs)| SnapshotChunk {
        snapshot,
        index: index % chunks,
        chunks,
        seq,
        runs,
    });
    prop_oneof![
        (events(), any::<u64>()).prop_map(|(events, last)| RangeReply::Events { events, last }),
        chunk.prop_map(RangeReply::Snapshot),
        prop::sample::select(refusals.to_vec()).prop_map(RangeReply::Refused),
    ]
}

fn report() -> impl Strategy<Value = LoadReport> {
    let rank = (any::<u32>(), any::<[u64; 6]>()).prop_map(|(rank, numbers)| {
        let [running, waiting, blocks_used, blocks_total, prefill_tokens, kv_sequence] = numbers;
        let rank = Rank(rank);
        RankLoad { rank, running, waiting, blocks_used, blocks_total, prefill_tokens, kv_sequence }
    });
    (any::<[u64; 3]>(), vec(rank, 0..9)).prop_map(|([worker, incarnation, measured_at_ms], ranks)| {
        let (worker_id, incarnation) = (WorkerId(worker), Incarnation(incarnation));
        LoadReport { worker_id, incarnation, measured_at_ms, ranks }
    })
}

fn survives<T: WireMessage + PartialEq + Debug>(message: &T) {
    assert_eq!(decode::<T>(&encode(message)).as_ref(), Ok(message));
}

/// Every type reads the bytes; none of them may panic.
fn read_as_everything(bytes: &[u8]) {
    drop((decode::<EventBatch>(bytes), decode::<LoadReport>(bytes)));
    drop((decode::<RangeRequest>(bytes), decode::<RangeReply>(bytes)));
}

proptest! {
    #[test]
    fn any_message_survives_the_way(
        batch in batch(), request in request(), reply in reply(), report in report(),
    ) {
        survives(&batch);
        survives(&request);
        survives(&reply);
        survives(&report);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        read_as_everything(&bytes);
        read_as_everything(&[&[8, 1][..], &bytes].concat());
    }

    #[test]
    fn any_damage_is_read_or_refused(batch in batch(), reply in reply(), at in any::<usize>(), byte in any::<u8>()) {
        for payload in [encode(&batch), encode(&reply)] {
            let mut bytes = payload.to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            read_as_everything(&bytes);
            read_as_everything(&bytes[..at]);
        }
    }

    #[test]
    fn batches_fit_and_bring_every_event_in_order(batch in batch(), limit in 300..2_000_usize) {
        let encoded = encode_batches(batch.row, batch.incarnation, &batch.events, limit);
        prop_assert_eq!(encoded.too_large, 0);
        let mut back = Vec::new();
        for (payload, count) in &encoded.batches {
            prop_assert!(payload.len() <= limit);
            let part: EventBatch = decode(payload).unwrap();
            prop_assert_eq!((part.row, part.incarnation, part.events.len()), (batch.row, batch.incarnation, *count));
            back.extend(part.events);
        }
        prop_assert_eq!(back, batch.events);
    }

    #[test]
    fn a_range_fits_and_brings_the_first_events(events in events(), last in any::<u64>(), limit in 300..2_000_usize) {
        let payload = encode_range(&events, last, limit).unwrap();
        prop_assert!(payload.len() <= limit);
        let RangeReply::Events { events: kept, last: told } = decode(&payload).unwrap() else { panic!("events") };
        prop_assert_eq!(&kept[..], &events[..kept.len()]);
        prop_assert!(told == last && (!kept.is_empty() || events.is_empty()));
    }

    #[test]
    fn a_snapshots_chunks_fit_and_are_the_snapshot(runs in vec(run(), 0..30), limit in 120..2_000_usize) {
        let snapshot = Snapshot { seq: u64::MAX, blocks: runs };
        let chunks = encode_snapshot(u64::MAX, &snapshot, limit).unwrap();
        let mut back = Vec::new();
        for (index, payload) in (0..).zip(&chunks) {
            prop_assert!(payload.len() <= limit);
            let RangeReply::Snapshot(chunk) = decode(payload).unwrap() else { panic!("a chunk") };
            prop_assert_eq!((chunk.index, chunk.chunks as usize, chunk.seq), (index, chunks.len(), u64::MAX));
            prop_assert!(chunks.len() == 1 || !chunk.runs.is_empty());
            back.extend(chunk.runs);
        }
        prop_assert_eq!(links(&back), links(&snapshot.blocks));
    }
}

/// Every block with its tier and the block before it: what is left when a run is cut in two.
fn links(runs: &[SnapshotRun]) -> Vec<(Tier, Option<SequenceHash>, SequenceHash)> {
    let links = runs.iter().flat_map(|run| {
        let before = std::iter::once(run.parent).chain(run.blocks.iter().copied().map(Some));
        before.zip(&run.blocks).map(|(parent, block)| (run.tier, parent, *block))
    });
    links.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn one_of_each_event() -> Vec<SequencedEvent> {
    let events = [
        KvEvent::Stored {
            tier: Tier::Device,
            parent: Some(SequenceHash(0x0102_0304_0506_0708)),
            blocks: vec![SequenceHash(1), SequenceHash(2)],
        },
        KvEvent::Removed { tier: Tier::Disk, blocks: vec![SequenceHash(2)] },
        KvEvent::Cleared,
        KvEvent::Unknown,
    ];
    (300..).zip(events).map(|(seq, event)| SequencedEvent { seq, event }).collect()
}

/// Whoever changes these changes what workers of other releases and languages read.
#[test]
fn the_bytes_on_the_wire_stay_as_they_are() {
    let batch =
        EventBatch { row: Row::new(7, 1), incarnation: Incarnation(0xAB), events: one_of_each_event() };
    let report = LoadReport {
        worker_id: WorkerId(7),
        incarnation: Incarnation(0xAB),
        measured_at_ms: 1_000,
        ranks: vec![RankLoad {
            rank: Rank(1),
            running: 2,
            waiting: 3,
            blocks_used: 4,
            blocks_total: 5,
            prefill_tokens: 6,
            kv_sequence: 7,
        }],
    };
    let question = |wanted| encode(&RangeRequest { rank: Rank(1), wanted });
    let chunk = SnapshotChunk {
        snapshot: 9,
        index: 1,
        chunks: 3,
        seq: 300,
        runs: vec![SnapshotRun {
            tier: Tier::Host,
            parent: Some(SequenceHash(1)),
            blocks: vec![SequenceHash(2)],
        }],
    };
    let golden = [
        (
            "batch",
            encode(&batch),
            "08011007180121ab000000000000002a2208ac02121d08011108070605040302011a10010000\
             000000000002000000000000002a1108ad021a0c0803120802000000000000002a0508ae0222\
             002a0308af02",
        ),
        ("load report", encode(&report), "0801100719ab0000000000000020e8072a0e0801100218032004280530063807"),
        ("events wanted", question(RangeWanted::Events { from: 300 }), "0801100118ac02"),
        ("state wanted", question(RangeWanted::State { after: 0 }), "080110012000"),
        ("chunk wanted", question(RangeWanted::Chunk { snapshot: 9, index: 2 }), "080110012a0408091002"),
        (
            "events",
            encode(&RangeReply::Events { events: one_of_each_event(), last: 303 }),
            "080112460a2208ac02121d08011108070605040302011a100100000000000000020000000000\
             00000a1108ad021a0c0803120802000000000000000a0508ae0222000a0308af0210af02",
        ),
        (
            "snapshot",
            encode(&RangeReply::Snapshot(chunk)),
            "08011a2008091001180320ac022a1508021101000000000000001a080200000000000000",
        ),
        ("refusal", encode(&RangeReply::Refused(Refusal::SnapshotGone)), "080122020802"),
    ];
    for (what, bytes, expected) in golden {
        assert_eq!(hex(&bytes), expected, "{what}");
    }
}

#[test]
fn a_version_to_come_is_refused_and_says_what_to_do() {
    let mut bytes = encode(&RangeRequest { rank: Rank(1), wanted: RangeWanted::Events { from: 1 } }).to_vec();
    assert_eq!(bytes[..2], [8, 1]);
    bytes[1] = 2;
    // Fields of that version may be of other types.
    bytes.extend([16 | 2, 1, 0]);
    let error = decode::<RangeRequest>(&bytes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a RangeRequest of major version 2 is refused: this release reads version 1; update this process"
    );
    assert_eq!(error.label(), "version");
    let unversioned = decode::<RangeRequest>(&bytes[2..]).unwrap_err();
    assert!(unversioned.to_string().contains("names no major version"), "{unversioned}");
}

#[test]
fn what_a_later_minor_release_adds_is_ignored() {
    let batch = EventBatch { row: Row::new(7, 0), incarnation: Incarnation(1), events: one_of_each_event() };
    let mut bytes = encode(&batch).to_vec();
    // Fields 100 to 103 of every type; then an event with one more field and a change of a new kind, number 9.
    bytes.extend([0xA0, 6, 5, 0xA9, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0xB2, 6, 1, 0, 0xBD, 6, 0, 0, 0, 0]);
    bytes.extend([42, 7, 8, 9, 0x98, 6, 1, 0x4A, 0]);
    let read: EventBatch = decode(&bytes).unwrap();
    assert_eq!(read.events[..4], batch.events[..]);
    assert_eq!(read.events[4..], [SequencedEvent { seq: 9, event: KvEvent::Unknown }]);
}

#[test]
fn b32_an_event_in_a_tier_to_come_keeps_its_number_and_one_in_no_tier_is_refused() {
    let stored = |tier| [8, 1, 42, 6, 8, 1, 18, 2, 8, tier];
    let read: EventBatch = decode(&stored(4)).unwrap();
    assert_eq!(read.events, [SequencedEvent { seq: 1, event: KvEvent::Unknown }]);
    let refused = decode::<EventBatch>(&stored(0)).unwrap_err().to_string();
    assert_eq!(refused, "not a valid KvEventBatch: blocks are in no tier: set `tier`");
    let unnumbered = decode::<EventBatch>(&[8, 1, 42, 2, 34, 0]).unwrap_err().to_string();
    assert!(unnumbered.contains("they count from 1"), "{unnumbered}");
}

/// Such parts take two bytes each on the wire, and up to a hundred in memory.
#[test]
fn b149_a_message_of_empty_parts_is_refused_before_anything_is_allocated_for_them() {
    let parts = |field: u8, count: usize| [(field << 3) | 2, 0].repeat(count);
    let nested = |field: u8, inner: Vec<u8>| {
        let mut bytes = vec![8, 1, (field << 3) | 2];
        let mut length = inner.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        [bytes, inner].concat()
    };
    let flat = [vec![8, 1], parts(5, 500_000)].concat();
    let limit = |error: Result<(), WireError>| match error {
        Err(error @ WireError::TooMany { limit, .. }) => (limit, error.label()),
        other => panic!("{other:?}"),
    };
    assert_eq!(limit(decode::<EventBatch>(&flat).map(drop)), (EVENTS_MAX, "too_many_parts"));
    assert_eq!(limit(decode::<LoadReport>(&flat).map(drop)).0, crate::records::RANKS_MAX as usize);
    let events = nested(2, parts(1, 500_000));
    assert_eq!(limit(decode::<RangeReply>(&events).map(drop)).0, EVENTS_MAX);
    // The same in two pieces, which a protobuf reader joins.
    let runs = nested(3, parts(5, RUNS_MAX / 2 + 1));
    let runs = [&runs[..], &runs[2..]].concat();
    assert_eq!(limit(decode::<RangeReply>(&runs).map(drop)).0, RUNS_MAX);
}

#[test]
fn garbage_is_refused_by_name() {
    for garbage in [&b""[..], b"{", b"\xff\xfe", b"[]", b"{\"row\":1}", &[8], &[8, 0], &[42, 0]] {
        let error = decode::<EventBatch>(garbage).unwrap_err().to_string();
        assert!(error.starts_with("not a valid KvEventBatch"), "{error}");
    }
    let chunk = |index, chunks| {
        let chunk = SnapshotChunk { snapshot: 1, index, chunks, seq: 1, runs: Vec::new() };
        decode::<RangeReply>(&encode(&RangeReply::Snapshot(chunk)))
    };
    assert!(chunk(0, 1).is_ok() && chunk(CHUNKS_MAX - 1, CHUNKS_MAX).is_ok());
    for (index, chunks) in [(0, 0), (1, 1), (0, CHUNKS_MAX + 1)] {
        assert!(chunk(index, chunks).unwrap_err().to_string().contains("there are 1 to 65536 chunks"));
    }
    assert!(decode::<RangeReply>(&[8, 1]).unwrap_err().to_string().contains("answers in no way"));
}

#[test]
fn the_envelope_takes_no_more_than_is_allowed_for_it() {
    let batch = EventBatch { row: Row::new(u64::MAX, u32::MAX), incarnation: Incarnation(1), events: vec![] };
    let chunk = SnapshotChunk {
        snapshot: u64::MAX,
        index: CHUNKS_MAX - 1,
        chunks: CHUNKS_MAX,
        seq: u64::MAX,
        runs: vec![],
    };
    let events = RangeReply::Events { events: vec![], last: u64::MAX };
    // What holds the parts has a length of up to five bytes, and of one while there are none.
    for empty in [encode(&batch), encode(&RangeReply::Snapshot(chunk)), encode(&events)] {
        assert!(empty.len() + 4 <= ENVELOPE_BYTES_MAX && Fields::of(&empty).count() >= 2);
    }
}

#[test]
fn an_event_that_fits_into_no_payload_is_counted_and_the_others_go() {
    let stored = |seq, blocks: u64| SequencedEvent {
        seq,
        event: KvEvent::Removed { tier: Tier::Device, blocks: (0..blocks).map(SequenceHash).collect() },
    };
    let events = [stored(1, 3), stored(2, 200), stored(3, 3)];
    let encoded = encode_batches(Row::new(1, 0), Incarnation(1), &events, 300);
    assert_eq!((encoded.too_large, encoded.batches.len()), (1, 2));
    assert_eq!(encode_range(&events[1..], 3, 300), None);
    assert_eq!(encode_snapshot(1, &Snapshot::default(), 64), None, "not even one block fits");
}
