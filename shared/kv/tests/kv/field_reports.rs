//! Bugs that other systems had in the field, by the numbers under which this project lists them.

use crate::end_to_end::{Receiver, canonical};
use switchtower_ids::{Incarnation, Row, SequenceHash, Tier};
use switchtower_kv::cursor::{Gap, Offer};
use switchtower_kv::event::{KvEvent, RangeAnswer, SequencedEvent};
use switchtower_kv::index::{Overlap, PrefixIndex, RefusalReason, RowSlot};
use switchtower_kv::publisher::{Publisher, PublisherLimits};

const LIFE: Incarnation = Incarnation(1);

fn hashes(numbers: impl IntoIterator<Item = u64>) -> Vec<SequenceHash> {
    numbers.into_iter().map(SequenceHash).collect()
}

fn stored(parent: u64, numbers: impl IntoIterator<Item = u64>) -> KvEvent {
    let parent = (parent != 0).then_some(SequenceHash(parent));
    KvEvent::Stored { tier: Tier::Device, parent, blocks: hashes(numbers) }
}

fn removed(numbers: impl IntoIterator<Item = u64>) -> KvEvent {
    KvEvent::Removed { tier: Tier::Device, blocks: hashes(numbers) }
}

fn publish(publisher: &mut Publisher, change: &KvEvent) -> Vec<SequencedEvent> {
    let mut out = Vec::new();
    publisher.observe(change, &mut out).unwrap();
    out
}

fn overlap(index: &PrefixIndex, slot: RowSlot, numbers: impl IntoIterator<Item = u64>) -> u32 {
    let mut overlap = Overlap::new();
    index.overlap(&hashes(numbers), &mut overlap);
    overlap.blocks(slot).total()
}

#[test]
fn b22_one_recovery_and_no_regression_after_a_snapshot() {
    let row = Row::new(1, 0);
    let limits = PublisherLimits { ring_events: 50, ..PublisherLimits::default() };
    let mut publisher = Publisher::new(limits);
    let mut receiver = Receiver::default();
    receiver.begin(row, LIFE);
    let mut requests = Vec::new();
    let mut old_snapshot = None;
    for number in 1..=300 {
        let news = publish(&mut publisher, &stored(number - 1, [number]));
        if number == 50 {
            old_snapshot = Some(publisher.snapshot());
        }
        for event in news.into_iter().filter(|event| !(101..=105).contains(&event.seq)) {
            if let Offer::Gap(gap) = receiver.receive(row, LIFE, event) {
                requests.push(gap);
            }
        }
        if number == 200 {
            assert_eq!(requests, [Gap { from: 101, to: 105 }]);
            let answer = publisher.range(101);
            assert!(matches!(answer, RangeAnswer::TooOld { .. }));
            receiver.receive_answer(row, LIFE, answer);
        }
        if number == 250 {
            let snapshot = old_snapshot.take().unwrap();
            receiver.receive_answer(row, LIFE, RangeAnswer::TooOld { snapshot });
        }
    }
    assert_eq!(requests.len(), 1, "exactly one recovery");
    let slot = receiver.slot(row);
    assert_eq!(overlap(&receiver.index, slot, 1..=300), 300);
    assert_eq!(receiver.cursor(row).applied(), 300);
}

#[test]
fn b24_a_new_life_replaces_the_old_state_and_a_gap_does_not() {
    let row = Row::new(1, 0);
    let mut receiver = Receiver::default();
    let slot = receiver.slot(row);
    receiver.begin(row, LIFE);
    let first = SequencedEvent { seq: 1, event: stored(0, 1..=200) };
    receiver.receive(row, LIFE, first);
    receiver.receive(row, LIFE, SequencedEvent { seq: 5, event: KvEvent::Cleared });
    assert_eq!(overlap(&receiver.index, slot, 1..=200), 200, "a gap alone wipes nothing");
    let restarted = SequencedEvent { seq: 1, event: stored(0, [900]) };
    assert_eq!(receiver.receive(row, Incarnation(2), restarted.clone()), Offer::NewIncarnation);
    receiver.begin(row, Incarnation(2));
    assert_eq!(receiver.receive(row, Incarnation(2), restarted), Offer::Applied);
    assert_eq!(overlap(&receiver.index, slot, 1..=200), 0);
    assert_eq!(overlap(&receiver.index, slot, [900]), 1);
}

#[test]
fn b25_late_events_do_not_resurrect_a_removed_worker() {
    let row = Row::new(4, 0);
    let mut publisher = Publisher::default();
    let mut receiver = Receiver::default();
    receiver.begin(row, LIFE);
    let events: Vec<_> =
        (1..=10_000).flat_map(|number| publish(&mut publisher, &stored(number - 1, [number]))).collect();
    for (at, event) in events.into_iter().enumerate() {
        if at == 5_000 {
            receiver.end(row);
        }
        let offer = receiver.receive(row, LIFE, event);
        assert_eq!(offer, if at < 5_000 { Offer::Applied } else { Offer::StaleIncarnation });
    }
    receiver.receive_answer(row, LIFE, publisher.range(1));
    receiver.receive_answer(row, LIFE, RangeAnswer::TooOld { snapshot: publisher.snapshot() });
    let stats = receiver.index.stats();
    assert_eq!((stats.rows, stats.blocks, stats.pairs), (0, 0, 0));
    assert!(stats.bytes < 16 << 10, "{} bytes are still taken", stats.bytes);
}

#[test]
fn b26_ranks_have_gaps_of_their_own() {
    let rows: Vec<Row> = (0..4).map(|rank| Row::new(1, rank)).collect();
    let mut publishers: Vec<Publisher> = rows.iter().map(|_| Publisher::default()).collect();
    let mut receiver = Receiver::default();
    for row in &rows {
        receiver.begin(*row, LIFE);
    }
    let mut gaps = Vec::new();
    for number in 1..=20_u64 {
        for (rank, row) in rows.iter().enumerate() {
            let offset = 1000 * rank as u64;
            let before = if number == 1 { 0 } else { offset + number - 1 };
            for event in publish(&mut publishers[rank], &stored(before, [offset + number])) {
                if rank == 2 && (7..=9).contains(&event.seq) {
                    continue;
                }
                if let Offer::Gap(gap) = receiver.receive(*row, LIFE, event) {
                    gaps.push((*row, gap));
                }
            }
        }
    }
    assert_eq!(gaps, [(rows[2], Gap { from: 7, to: 9 })]);
    receiver.receive_answer(rows[2], LIFE, publishers[2].range(7));
    for (rank, row) in rows.iter().enumerate() {
        let (slot, offset) = (receiver.slot(*row), 1000 * rank as u64);
        assert_eq!(overlap(&receiver.index, slot, offset + 1..=offset + 20), 20, "rank {rank}");
    }
}

#[test]
fn b27_every_rank_is_itself_also_after_a_restart() {
    let rows: Vec<Row> = (0..4).map(|rank| Row::new(1, rank)).collect();
    let mut receiver = Receiver::default();
    for (row, number) in rows.iter().zip(1..) {
        receiver.begin(*row, LIFE);
        let event = SequencedEvent { seq: 1, event: stored(0, [number]) };
        assert_eq!(receiver.receive(*row, LIFE, event), Offer::Applied);
    }
    let restarted = rows[2];
    receiver.begin(restarted, Incarnation(2));
    receiver.receive(restarted, Incarnation(2), SequencedEvent { seq: 1, event: stored(0, [30]) });
    for (row, number) in rows.iter().zip([1, 2, 30, 4]) {
        let slot = receiver.slot(*row);
        for asked in [1, 2, 3, 4, 30] {
            assert_eq!(
                overlap(&receiver.index, slot, [asked]),
                u32::from(asked == number),
                "{row} and block {asked}"
            );
        }
    }
}

#[test]
fn b32_cleared_empties_one_rank_and_unknown_kinds_are_counted() {
    let mut index = PrefixIndex::default();
    let (cleared, other) = (RowSlot(0), RowSlot(1));
    for slot in [cleared, other] {
        index.apply(slot, &stored(0, 1..=5)).unwrap();
        let host = KvEvent::Stored { tier: Tier::Host, parent: Some(SequenceHash(5)), blocks: hashes([6]) };
        index.apply(slot, &host).unwrap();
    }
    let batch = [KvEvent::Unknown, KvEvent::Cleared, KvEvent::Unknown, stored(0, [9])];
    let refused = batch.iter().filter(|event| index.apply(cleared, event).is_err()).count();
    assert_eq!(refused, 2);
    assert_eq!(index.stats().refused.events(RefusalReason::UnknownKind), 2);
    assert_eq!(overlap(&index, cleared, 1..=6), 0);
    assert_eq!(overlap(&index, cleared, [9]), 1);
    assert_eq!(overlap(&index, other, 1..=6), 6);
}

#[test]
fn b34_blocks_are_a_set_and_what_follows_a_lost_one_comes_back() {
    let mut publisher = Publisher::default();
    let mut index = PrefixIndex::default();
    let mut history = Vec::new();
    let mut step = |change: KvEvent| {
        for event in publish(&mut publisher, &change) {
            index.apply(RowSlot(0), &event.event).unwrap();
            history.push(event.event);
        }
        overlap(&index, RowSlot(0), 1..=7)
    };
    assert_eq!(step(stored(0, 1..=7)), 7);
    assert_eq!(step(stored(2, [3])), 7, "a second copy");
    assert_eq!(step(removed([3])), 2, "one removal removes the block: rather too little than too much");
    assert_eq!(step(removed([3])), 2);
    assert_eq!(step(stored(2, [3])), 7, "the engine held the rest all the time");
    assert_eq!(step(stored(2, [3])), 7);
    assert_eq!(step(removed([3])), 2, "repeated stores do not add up");
    assert_eq!(index.row_blocks(RowSlot(0)), 2);
    assert_eq!(index.stats().refused, PrefixIndex::default().stats().refused);
}

#[test]
fn b36_recovery_during_live_events_equals_the_live_run() {
    let row = Row::new(1, 0);
    let limits = PublisherLimits { ring_events: 300, ..PublisherLimits::default() };
    let mut publisher = Publisher::new(limits);
    let (mut live, mut restarted) = (Receiver::default(), Receiver::default());
    live.begin(row, LIFE);
    restarted.begin(row, LIFE);
    let mut asked = None;
    for number in 1..=1_000_u64 {
        let chain = 10 * (number % 37);
        let change =
            if number % 3 == 2 { removed([chain + 3, chain + 2]) } else { stored(0, chain + 1..=chain + 3) };
        for event in publish(&mut publisher, &change) {
            live.receive(row, LIFE, event.clone());
            if number > 600
                && let Offer::Gap(gap) = restarted.receive(row, LIFE, event)
            {
                asked.get_or_insert((number, publisher.range(gap.from)));
            }
        }
        if let Some((_, answer)) = asked.take_if(|(at, _)| *at + 5 <= number) {
            restarted.receive_answer(row, LIFE, answer);
        }
    }
    let counts = |receiver: &Receiver| (receiver.index.stats().blocks, receiver.index.stats().pairs);
    assert_eq!(counts(&live), counts(&restarted));
    assert_eq!(canonical(&mut live.index), canonical(&mut restarted.index));
    assert_eq!(restarted.cursor(row).applied(), publisher.last_seq());
}

#[test]
fn b40_repeated_removals_are_quiet_and_nothing_goes_negative() {
    let mut index = PrefixIndex::default();
    let slot = RowSlot(0);
    index.apply(slot, &stored(0, 1..=4)).unwrap();
    assert!(index.apply(slot, &removed([1])).is_err(), "the index asks for descendants first, or together");
    index.apply(slot, &removed([1, 2, 3, 4])).unwrap();
    for _ in 0..2 {
        index.apply(slot, &removed([2, 3, 4])).unwrap();
        index.apply(slot, &removed([1, 1])).unwrap();
    }
    assert_eq!((index.row_blocks(slot), index.stats().absent_removals), (0, 10));
    index.apply(slot, &stored(0, 1..=4)).unwrap();
    assert_eq!(overlap(&index, slot, 1..=4), 4);
}
