//! When workers are asked, how often, and what their answers are worth.

use super::*;
use std::collections::BTreeMap;
use switchtower_ids::{SequenceHash, Tier};
use switchtower_kv::event::KvEvent;

const LIFE: Incarnation = Incarnation(7);

struct Setup {
    ingest: Ingest,
    index: SharedIndex,
}

fn setup(rows: &[Row]) -> Setup {
    let mut setup = Setup { ingest: Ingest::new(IngestMetrics::default()), index: SharedIndex::default() };
    rows.iter().for_each(|row| setup.follow(*row));
    setup
}

/// One block that nobody else has.
fn event(seq: u64) -> SequencedEvent {
    let blocks = vec![SequenceHash(seq)];
    SequencedEvent { seq, event: KvEvent::Stored { tier: Tier::Device, parent: None, blocks } }
}

fn events(seqs: std::ops::RangeInclusive<u64>) -> Vec<SequencedEvent> {
    seqs.map(event).collect()
}

impl Setup {
    fn follow(&mut self, row: Row) {
        self.ingest.follow(row, LIFE, slot(row), &self.index);
    }

    fn live(&mut self, row: Row, events: Vec<SequencedEvent>) {
        self.ingest.take_batch(EventBatch { row, incarnation: LIFE, events });
    }

    /// Starts what is due and answers it at once; returns what was asked for.
    fn answered(&mut self, answer: impl Fn(&Repair) -> Option<RangeAnswer>) -> Vec<u64> {
        let due = self.ingest.due(usize::MAX);
        for repair in &due {
            self.ingest.repaired(*repair, answer(repair));
        }
        due.into_iter().map(|repair| repair.from).collect()
    }

    fn blocks(&self) -> u64 {
        self.index.stats().pairs
    }
}

fn slot(row: Row) -> RowSlot {
    RowSlot(u32::try_from(row.worker.0).unwrap() * 100 + row.rank.0)
}

fn log_up_to(last: u64) -> impl Fn(&Repair) -> Option<RangeAnswer> {
    move |repair| Some(RangeAnswer::Events { events: events(repair.from..=last) })
}

const ROW: Row = Row::new(1, 0);

#[test]
fn b22_one_gap_is_one_repair() {
    let mut setup = setup(&[ROW]);
    assert_eq!(setup.answered(log_up_to(0)), [1], "the whole log of a new row");
    setup.live(ROW, events(1..=100));
    for seq in 106..=150 {
        setup.live(ROW, vec![event(seq)]);
    }
    assert_eq!(setup.answered(log_up_to(150)), [101]);
    setup.live(ROW, events(151..=300));
    for _ in 0..1_000 {
        setup.ingest.tick();
        assert_eq!(setup.answered(log_up_to(300)), [0_u64; 0]);
    }
    assert_eq!(setup.blocks(), 300);
}

#[test]
fn b139_a_worker_that_never_helps_is_asked_ever_more_rarely() {
    type Answers = fn(&Repair) -> Option<RangeAnswer>;
    let answers: [(&str, Answers); 3] = [
        ("no answer", |_| None),
        ("an empty answer", |_| Some(RangeAnswer::Events { events: Vec::new() })),
        ("events that are known", |_| Some(RangeAnswer::Events { events: events(1..=1) })),
    ];
    for (what, answer) in answers {
        let mut setup = setup(&[ROW]);
        setup.live(ROW, vec![event(1), event(9)]);
        assert!(setup.ingest.expect(ROW, LIFE, u64::MAX), "it claims to have more than it will ever send");
        let mut asked = 0;
        for _ in 0..1_000 {
            asked += setup.answered(answer).len();
            assert_eq!(setup.answered(answer), [0_u64; 0], "{what}: never at once");
            setup.ingest.tick();
        }
        assert!((10..=30).contains(&asked), "{what}: asked {asked} times in 1000 ticks");
    }
}

#[test]
fn a_repair_that_helps_is_followed_by_the_next_without_a_pause() {
    let mut setup = setup(&[ROW]);
    setup.live(ROW, vec![event(40)]);
    let one_by_one = |repair: &Repair| {
        let from = repair.from.max(1);
        Some(RangeAnswer::Events { events: events(from..=from) })
    };
    let ticks = (0..200).take_while(|_| {
        setup.answered(one_by_one);
        setup.ingest.tick();
        setup.ingest.rows[&ROW].cursor.applied() < 40
    });
    assert_eq!(ticks.count(), 38, "39 events were missing, one comes with each tick");
}

#[test]
fn b139_a_worker_answers_for_two_ranks_at_a_time_and_all_get_their_turn() {
    let rows: Vec<_> = (0..6).map(|rank| Row::new(1, rank)).chain([Row::new(2, 0)]).collect();
    let mut setup = setup(&rows);
    let mut served = BTreeMap::<Row, usize>::new();
    let mut under_way: Vec<Repair> = Vec::new();
    for _ in 0..20 {
        under_way.extend(setup.ingest.due(16));
        assert!(under_way.iter().filter(|repair| repair.row.worker == WorkerId(1)).count() <= 2);
        if let Some(repair) = under_way.pop() {
            *served.entry(repair.row).or_default() += 1;
            setup.ingest.repaired(repair, log_up_to(3)(&repair));
        }
    }
    assert_eq!(served, rows.iter().map(|row| (*row, 1)).collect());
    assert!(setup.ingest.under_way.is_empty() && setup.ingest.listed.is_empty());
}

#[test]
fn an_answer_to_a_question_of_before_the_row_came_back_is_dropped() {
    let mut setup = setup(&[ROW]);
    let old = setup.ingest.due(1).remove(0);
    setup.ingest.retain(|_| false);
    setup.follow(ROW);
    let new = setup.ingest.due(1).remove(0);
    setup.ingest.repaired(old, Some(RangeAnswer::Events { events: Vec::new() }));
    assert!(setup.ingest.rows[&ROW].repair.awaits(new.number), "the new question is still out");
    setup.ingest.repaired(new, None);
    setup.ingest.tick();
    assert_eq!(setup.answered(log_up_to(3)), [1], "its whole log is still wanted");
    assert_eq!(setup.blocks(), 3);
}

#[test]
fn an_answer_for_a_former_index_does_not_reach_the_next_one() {
    let mut setup = setup(&[ROW]);
    let old = setup.ingest.due(1).remove(0);
    setup.index = SharedIndex::default();
    setup.follow(ROW);
    setup.ingest.repaired(old, log_up_to(5)(&old));
    assert_eq!(setup.blocks(), 0);
    assert_eq!(setup.answered(log_up_to(4)), [1]);
    assert_eq!(setup.blocks(), 4);
}

#[test]
fn a_row_that_left_keeps_no_place_and_its_repair_is_given_back() {
    let mut setup = setup(&[ROW, Row::new(1, 1), Row::new(1, 2)]);
    let under_way = setup.ingest.due(16);
    assert_eq!(under_way.len(), 2);
    setup.ingest.retain(|_| false);
    for repair in under_way {
        setup.ingest.repaired(repair, None);
    }
    assert!(setup.ingest.rows.is_empty() && setup.ingest.listed.is_empty());
    assert!(setup.ingest.under_way.is_empty());
}

#[test]
fn a_refused_event_is_repaired_by_snapshot_and_a_worker_that_stays_wrong_is_asked_rarely() {
    let orphan = |seq| SequencedEvent {
        seq,
        event: KvEvent::Stored {
            tier: Tier::Device,
            parent: Some(SequenceHash(9_999)),
            blocks: vec![SequenceHash(seq)],
        },
    };
    let mut setup = setup(&[ROW]);
    setup.answered(log_up_to(0));
    let mut asked = Vec::new();
    for seq in 1..=200 {
        setup.live(ROW, vec![orphan(seq)]);
        asked.extend(setup.answered(|_| None));
        setup.ingest.tick();
    }
    assert!(asked.iter().all(|from| *from == 0), "only a snapshot helps: {asked:?}");
    assert!((3..=10).contains(&asked.len()), "{asked:?}");
}
