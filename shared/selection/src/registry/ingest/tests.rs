//! When workers are asked, how often, and what their answers are worth.

use super::*;
use std::collections::BTreeMap;
use switchtower_ids::{SequenceHash, Tier};
use switchtower_kv::event::{KvEvent, SnapshotRun};

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
    fn answered(&mut self, answer: impl Fn(&Repair) -> Option<RepairAnswer>) -> Vec<u64> {
        let due = self.ingest.due(usize::MAX);
        for repair in &due {
            self.ingest.repaired(*repair, answer(repair));
        }
        due.into_iter().map(|repair| repair.from).collect()
    }

    fn standing(&self) -> Standing {
        self.ingest.standing(ROW).expect("the row is followed")
    }

    fn blocks(&self) -> u64 {
        self.index.stats().pairs
    }
}

fn slot(row: Row) -> RowSlot {
    RowSlot(u32::try_from(row.worker.0).unwrap() * 100 + row.rank.0)
}

fn log_up_to(last: u64) -> impl Fn(&Repair) -> Option<RepairAnswer> {
    move |repair| Some(RepairAnswer::Events { events: events(repair.from..=last), last })
}

const ROW: Row = Row::new(1, 0);

/// What a worker says to a repair.
type Answers = fn(&Repair) -> Option<RepairAnswer>;

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
    let answers: [(&str, Answers); 3] = [
        ("no answer", |_| None),
        ("an empty answer", |_| Some(RepairAnswer::Events { events: Vec::new(), last: 0 })),
        ("events that are known", |_| Some(RepairAnswer::Events { events: events(1..=1), last: 9 })),
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
        Some(RepairAnswer::Events { events: events(from..=from), last: 40 })
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
    setup.ingest.repaired(old, Some(RepairAnswer::Events { events: Vec::new(), last: 0 }));
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

/// What a worker holds after event `seq` of a log of [`event`]s.
fn state_after(seq: u64) -> RepairAnswer {
    let run = |seq| SnapshotRun { tier: Tier::Device, parent: None, blocks: vec![SequenceHash(seq)] };
    RepairAnswer::Snapshot(Snapshot { seq, blocks: (1..=seq).map(run).collect() })
}

#[test]
fn b22_after_a_snapshot_live_events_go_on_where_it_ends() {
    let mut setup = setup(&[ROW]);
    assert_eq!(setup.answered(log_up_to(0)), [1]);
    setup.live(ROW, events(1..=100));
    setup.live(ROW, events(106..=200));
    assert_eq!(setup.answered(|_| Some(state_after(205))), [101]);
    for seq in 203..=300 {
        setup.live(ROW, vec![event(seq)]);
        setup.ingest.tick();
        assert_eq!(setup.answered(|_| None), [0_u64; 0], "one repair, then no more");
    }
    assert_eq!(setup.blocks(), 300);
}

#[test]
fn a_range_of_several_pages_is_read_on_without_a_pause() {
    let mut setup = setup(&[ROW]);
    let page = |repair: &Repair| {
        let to = (repair.from + 9).min(95);
        Some(RepairAnswer::Events { events: events(repair.from..=to), last: 95 })
    };
    let mut asked = Vec::new();
    for _ in 0..12 {
        assert!(setup.standing().awaits_whole_log || asked.len() == 10);
        asked.extend(setup.answered(page));
    }
    assert_eq!(asked, [1, 11, 21, 31, 41, 51, 61, 71, 81, 91]);
    assert_eq!((setup.blocks(), setup.standing().applied), (95, 95));
}

#[test]
fn b139_a_log_that_is_never_answered_to_its_end_is_not_waited_for() {
    let answers: [(&str, Answers); 2] = [
        ("silent", |_| None),
        ("boastful", |repair| {
            Some(RepairAnswer::Events { events: events(repair.from..=repair.from), last: u64::MAX })
        }),
    ];
    for (what, answer) in answers {
        let mut setup = setup(&[ROW]);
        let ticks = (0..1_000).take_while(|_| {
            setup.answered(answer);
            setup.ingest.tick();
            setup.standing().awaits_whole_log
        });
        assert!((3..100).contains(&ticks.count()), "{what}");
    }
}

#[test]
fn b24_a_new_life_begins_empty_and_a_gap_alone_takes_nothing_away() {
    let mut setup = setup(&[ROW]);
    setup.answered(log_up_to(0));
    setup.live(ROW, events(1..=200));
    setup.live(ROW, events(260..=260));
    assert_eq!(setup.blocks(), 200, "a gap says nothing about what was there before");
    let next = Incarnation(8);
    let born = |blocks: u64| SequencedEvent {
        seq: 1,
        event: KvEvent::Removed { tier: Tier::Device, blocks: vec![SequenceHash(blocks)] },
    };
    setup.ingest.take_batch(EventBatch { row: ROW, incarnation: next, events: vec![born(1)] });
    assert_eq!(setup.blocks(), 200, "a life that is not registered may be anybody's");
    setup.ingest.follow(ROW, next, slot(ROW), &setup.index);
    assert_eq!(setup.blocks(), 0);
    setup.live(ROW, events(201..=210));
    let asked = setup.answered(|repair| {
        assert_eq!(repair.incarnation, next);
        log_up_to(3)(repair)
    });
    assert_eq!((asked, setup.blocks()), (vec![1], 3));
    setup.ingest.follow(ROW, LIFE, slot(ROW), &setup.index);
    assert_eq!(setup.blocks(), 0, "a life that comes back has no cache either");
}

#[test]
fn b25_nothing_that_comes_late_brings_a_row_back_that_left() {
    for leave_at in 1..=100 {
        let mut setup = setup(&[ROW]);
        let under_way = setup.ingest.due(16);
        for seq in 1..=100 {
            if seq == leave_at {
                setup.ingest.retain(|_| false);
                setup.index.drop_row(slot(ROW));
            }
            setup.live(ROW, vec![event(seq)]);
        }
        setup.ingest.repaired(under_way[0], Some(state_after(1_000)));
        setup.ingest.tick();
        assert_eq!((setup.blocks(), setup.answered(log_up_to(1_000))), (0, vec![]));
        assert!(setup.ingest.rows.is_empty() && setup.ingest.under_way.is_empty());
    }
}

#[test]
fn b26_b27_a_gap_of_one_rank_is_asked_of_that_rank_and_each_rank_has_a_log_of_its_own() {
    let rows: Vec<_> = (0..4).map(|rank| Row::new(1, rank)).collect();
    let mut setup = setup(&rows);
    for _ in 0..2 {
        assert_eq!(setup.answered(log_up_to(0)).len(), 2);
    }
    for seq in 1..=50 {
        for row in &rows {
            if row.rank.0 != 2 || !(20..=22).contains(&seq) {
                setup.live(*row, vec![event(seq)]);
            }
        }
    }
    setup.live(Row::new(1, 4), events(1..=50));
    let due = setup.ingest.due(16);
    assert_eq!(due.iter().map(|repair| (repair.row, repair.from)).collect::<Vec<_>>(), [(rows[2], 20)]);
    assert_eq!(setup.blocks(), 3 * 50 + 19);
    setup.ingest.repaired(due[0], log_up_to(50)(&due[0]));
    assert_eq!(setup.blocks(), 4 * 50, "and nothing of a rank that was never announced");
}

#[test]
fn b36_what_is_replayed_while_live_events_come_is_what_was_heard() {
    let (mut heard, mut replayed) = (setup(&[ROW]), setup(&[ROW]));
    heard.answered(log_up_to(0));
    heard.live(ROW, events(1..=1_000));
    let mut live = 601;
    for _ in 0..200 {
        let page = |repair: &Repair| {
            let to = (repair.from + 30).min(live);
            Some(RepairAnswer::Events { events: events(repair.from..=to), last: live })
        };
        replayed.answered(page);
        if live < 1_000 {
            live += 3;
            replayed.live(ROW, events(live - 2..=live));
        }
        replayed.ingest.tick();
    }
    let dump = |setup: &Setup| (setup.blocks(), setup.index.stats().blocks, setup.standing().applied);
    assert_eq!(dump(&replayed), dump(&heard));
}

/// The row's event 2 was refused, and its state is being asked for.
fn in_doubt() -> (Setup, Repair) {
    let mut setup = setup(&[ROW]);
    setup.answered(log_up_to(0));
    let (parent, blocks) = (Some(SequenceHash(9_999)), vec![SequenceHash(2)]);
    let orphan = KvEvent::Stored { tier: Tier::Device, parent, blocks };
    setup.live(ROW, vec![event(1), SequencedEvent { seq: 2, event: orphan }]);
    let repair = setup.ingest.due(1).remove(0);
    assert_eq!((repair.from, repair.applied), (0, 2));
    (setup, repair)
}

#[test]
fn what_comes_while_a_snapshot_is_under_way_waits_and_applies_behind_it() {
    let (mut setup, repair) = in_doubt();
    setup.live(ROW, events(3..=5));
    assert_eq!(setup.blocks(), 1, "the state is in doubt, nothing is added to it");
    setup.ingest.repaired(repair, Some(state_after(3)));
    assert_eq!((setup.blocks(), setup.standing().applied), (5, 5));
    setup.ingest.tick();
    assert_eq!(setup.answered(|_| None), [0_u64; 0]);
}

#[test]
fn what_waited_for_a_snapshot_that_never_came_applies_without_it() {
    let (mut setup, repair) = in_doubt();
    setup.live(ROW, events(3..=5));
    setup.ingest.repaired(repair, None);
    assert_eq!((setup.blocks(), setup.standing().applied), (4, 5), "event 2 was refused");
}

#[test]
fn more_than_can_wait_for_a_snapshot_is_asked_for_behind_it() {
    let (mut setup, repair) = in_doubt();
    for seq in 3..=500 {
        setup.live(ROW, vec![event(seq)]);
    }
    setup.ingest.repaired(repair, Some(state_after(2)));
    assert_eq!(setup.standing().applied, 66, "64 can wait");
    assert_eq!(setup.answered(log_up_to(500)), [67]);
    assert_eq!(setup.blocks(), 500);
}
