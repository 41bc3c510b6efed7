//! Entries and the loads that follow from them; a naive book beside the real one over random histories.

use super::*;
use crate::testing::{key, prompt};
use proptest::prelude::*;
use switchtower_ids::{Incarnation, SequenceHash};

fn booked(counter: u64, attempt: u32, worker: u64) -> Entry {
    booked_in(counter, attempt, worker, 1)
}

/// The `number`th life of a worker.
fn life_of(number: u64) -> Life {
    Life { incarnation: Incarnation(number), revision: 10 * number }
}

fn booked_in(counter: u64, attempt: u32, worker: u64, life: u64) -> Entry {
    Entry::Booked(Booked {
        key: key(counter),
        attempt,
        row: Row::new(worker, 0),
        life: life_of(life),
        prefill_tokens: 100 * counter,
        blocks: kept_blocks(&prompt(counter % 3, 20 + counter)).into(),
        expected_output_tokens: None,
        alias: None,
    })
}

fn released(counter: u64) -> Entry {
    Entry::Released { key: key(counter), by_caller: false }
}

/// A book that applies entries as its own log numbers them.
#[derive(Default)]
struct Written {
    book: Book,
    log: Log,
}

impl Written {
    fn with_lives(lives: &[(u64, u64)]) -> Self {
        let mut written = Self::default();
        written.lives(lives);
        written
    }

    fn lives(&mut self, lives: &[(u64, u64)]) {
        self.book.set_lives(lives.iter().map(|(worker, life)| (Row::new(*worker, 0), life_of(*life))));
    }

    fn write(&mut self, entry: Entry) -> &mut Self {
        let entry = self.log.append(entry);
        self.book.apply(0, &entry).unwrap();
        self
    }

    fn load(&self, worker: u64) -> RowLoad {
        self.book.load(Row::new(worker, 0))
    }
}

#[test]
fn book_rule_2_entries_apply_strictly_in_sequence() {
    let mut book = Book::default();
    let mut log = Log::default();
    let (first, second) = (log.append(booked(1, 1, 1)), log.append(released(1)));
    assert_eq!(book.apply(0, &second), Err(OutOfSequence { applied: 0, found: 2 }));
    assert!(book.is_empty());
    book.apply(0, &first).unwrap();
    assert_eq!(book.apply(0, &first), Err(OutOfSequence { applied: 1, found: 1 }));
    book.apply(0, &second).unwrap();
    assert!(book.is_empty());
}

#[test]
fn a_reservation_lives_from_booked_to_released() {
    let mut written = Written::with_lives(&[(1, 1)]);
    written.write(booked(3, 1, 1));
    let full =
        RowLoad { active_requests: 1, active_prefill_tokens: 300, prompt_blocks: 23, output_blocks: 0 };
    assert_eq!(written.load(1), full);
    written.write(Entry::PrefillComplete { key: key(3), attempt: 1 });
    written.write(Entry::PrefillComplete { key: key(3), attempt: 1 });
    assert_eq!(written.load(1), RowLoad { active_prefill_tokens: 0, ..full });
    for total_blocks in [2, 1, 5] {
        written.write(Entry::OutputGrew { key: key(3), total_blocks });
    }
    assert_eq!(written.load(1).output_blocks, 5, "absolute totals merge by maximum");
    written.write(released(3)).write(released(3));
    assert_eq!(written.load(1), RowLoad::default());
    assert_eq!(written.book.kept_hashes(), 0);
}

#[test]
fn book_rule_4_a_higher_attempt_replaces_the_lower_in_one_step() {
    let mut written = Written::with_lives(&[(1, 1), (2, 1)]);
    written.write(booked(1, 1, 1)).write(booked(1, 2, 2)).write(booked(1, 1, 1));
    assert_eq!((written.load(1).active_requests, written.load(2).active_requests), (0, 1));
    written.write(Entry::PrefillComplete { key: key(1), attempt: 1 });
    assert_eq!(written.load(2).active_prefill_tokens, 100, "news of a replaced attempt changes nothing");
    written.write(released(1));
    assert_eq!(written.load(2), RowLoad::default());
}

#[test]
fn book_rule_6_only_known_rows_in_their_current_life_count() {
    let mut written = Written::with_lives(&[(1, 1)]);
    written.write(booked(1, 1, 1)).write(booked(2, 1, 2));
    assert_eq!((written.load(1).active_requests, written.load(2).active_requests), (1, 0));
    written.lives(&[(1, 1), (2, 1)]);
    assert_eq!(written.load(2).active_requests, 1, "the row became known");
    written.lives(&[(1, 7), (2, 1)]);
    assert_eq!(
        written.load(1),
        RowLoad::default(),
        "b44: the worker restarted, its old bookings count for nothing"
    );
    written.write(booked_in(3, 1, 1, 7)).write(released(1));
    assert_eq!(
        written.load(1).active_requests,
        1,
        "b44: releasing the old booking takes nothing from the new life"
    );
    let again = Life { revision: 999, ..life_of(7) };
    written.book.set_lives([(Row::new(1, 0), again)]);
    assert_eq!(written.load(1).active_requests, 1, "a life that registers again is the same life");
    written.lives(&[]);
    assert_eq!(written.load(1), RowLoad::default());
    written.write(released(2)).write(released(3));
    assert!(written.book.is_empty() && written.book.kept_hashes() == 0);
}

#[test]
fn book_rule_3_aliases_answer_and_leave_tombstones_for_a_minute() {
    let mut book = Book::default();
    let mut log = Log::default();
    let alias = Alias { id: "mine".into(), fingerprint: 5 };
    let Entry::Booked(plain) = booked(1, 1, 1) else { unreachable!() };
    book.apply(0, &log.append(Entry::Booked(Booked { alias: Some(alias), ..plain }))).unwrap();
    assert_eq!(book.by_alias("mine"), Some((key(1), 5)));
    assert_eq!(book.freed(0, "mine"), Freed::Live(key(1)));
    assert_eq!(book.freed(0, "yours"), Freed::Unknown);
    book.apply(1_000, &log.append(Entry::Released { key: key(1), by_caller: true })).unwrap();
    assert_eq!(book.by_alias("mine"), None);
    assert_eq!(book.freed(60_999, "mine"), Freed::AlreadyReleased);
    assert_eq!(book.freed(61_000, "mine"), Freed::Unknown);
}

#[test]
fn b47_entries_without_a_booking_change_nothing() {
    let mut written = Written::with_lives(&[(1, 1)]);
    written.write(booked(1, 1, 1));
    let before = written.load(1);
    written.write(released(2)).write(Entry::PrefillComplete { key: key(2), attempt: 1 });
    written.write(Entry::OutputGrew { key: key(2), total_blocks: 9 });
    assert_eq!(written.load(1), before);
    written.write(released(1)).write(released(1)).write(Entry::PrefillComplete { key: key(1), attempt: 1 });
    written.write(Entry::OutputGrew { key: key(1), total_blocks: 9 });
    assert_eq!(written.load(1), RowLoad::default());
}

#[test]
fn b88_numbers_beyond_reason_are_bounded_and_come_back() {
    let mut written = Written::with_lives(&[(1, 1)]);
    for counter in 1..=3 {
        let Entry::Booked(plain) = booked(counter, 1, 1) else { unreachable!() };
        written.write(Entry::Booked(Booked { prefill_tokens: u64::MAX, ..plain }));
        written.write(Entry::OutputGrew { key: key(counter), total_blocks: u64::MAX });
    }
    assert_eq!(written.load(1).output_blocks, 3 * ENTRY_MAX);
    assert!(written.load(1).active_blocks() > 3 * ENTRY_MAX, "the sum with the prompts' blocks too");
    written.write(Entry::PrefillComplete { key: key(1), attempt: 1 });
    for counter in 1..=3 {
        written.write(released(counter));
    }
    assert_eq!(written.load(1), RowLoad::default());
}

#[test]
fn b43_an_attempt_without_the_alias_of_the_one_before_does_not_leave_it_behind() {
    let mut written = Written::with_lives(&[(1, 1)]);
    let Entry::Booked(plain) = booked(1, 1, 1) else { unreachable!() };
    let alias = Some(Alias { id: "mine".into(), fingerprint: 5 });
    written.write(Entry::Booked(Booked { alias, ..plain })).write(booked(1, 2, 1));
    assert_eq!(written.book.by_alias("mine"), None);
    written.write(released(1));
    assert_eq!(written.book.freed(0, "mine"), Freed::Unknown);
}

/// The book as one would write it without a thought for speed.
#[derive(Default)]
struct Naive {
    live: std::collections::BTreeMap<u64, (Booked, u64, u64)>,
}

impl Naive {
    fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Booked(booked) => {
                let lower =
                    self.live.get(&booked.key.counter).is_none_or(|(live, ..)| live.attempt < booked.attempt);
                if lower {
                    self.live.insert(booked.key.counter, (booked.clone(), booked.prefill_tokens, 0));
                }
            }
            Entry::PrefillComplete { key, attempt } => {
                if let Some((_, tokens, _)) =
                    self.live.get_mut(&key.counter).filter(|live| live.0.attempt == *attempt)
                {
                    *tokens = 0;
                }
            }
            Entry::OutputGrew { key, total_blocks } => {
                if let Some((.., blocks)) = self.live.get_mut(&key.counter) {
                    *blocks = (*blocks).max(*total_blocks);
                }
            }
            Entry::Released { key, .. } => {
                self.live.remove(&key.counter);
            }
        }
    }

    fn load(&self, worker: u64, life: Option<u64>) -> RowLoad {
        let mut load = RowLoad::default();
        let mut hashes = std::collections::BTreeMap::<SequenceHash, u64>::new();
        let row = Row::new(worker, 0);
        let counting =
            |booked: &Booked| booked.row == row && life.is_some_and(|life| booked.life.revision >= 10 * life);
        for (booked, tokens, blocks) in self.live.values().filter(|live| counting(&live.0)) {
            load.active_requests += 1;
            load.active_prefill_tokens += tokens;
            load.output_blocks += blocks;
            hashes.extend(booked.blocks.iter().map(|block| (block.hash, u64::from(block.weight))));
        }
        load.prompt_blocks = hashes.values().sum();
        load
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(Entry),
    Lives([Option<u64>; 3]),
}

/// Lives only go up, as the store's revisions do.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let entry = prop_oneof![
        4 => (1..8_u64, 1..4_u32, 0..3_u64).prop_map(|(counter, attempt, worker)| (counter, attempt, worker, 0)),
        1 => (1..8_u64, 1..4_u32).prop_map(|(counter, attempt)| (counter, attempt, 0, 1)),
        1 => (1..8_u64, 0..9_u32).prop_map(|(counter, total)| (counter, total, 0, 2)),
        2 => (1..8_u64).prop_map(|counter| (counter, 0, 0, 3)),
        1 => (0..8_u32).prop_map(|known| (0, known, 0, 4)),
    ];
    let restarts = any::<bool>();
    proptest::collection::vec((entry, restarts), 1..60).prop_map(|drawn| {
        let mut lives = [1_u64; 3];
        let steps = drawn.into_iter().map(|((counter, number, worker, kind), restart)| match kind {
            0 => Step::Write(booked_in(counter, number, worker, lives[worker as usize])),
            1 => Step::Write(Entry::PrefillComplete { key: key(counter), attempt: number }),
            2 => Step::Write(Entry::OutputGrew { key: key(counter), total_blocks: u64::from(number) }),
            3 => Step::Write(released(counter)),
            _ => {
                lives[0] += u64::from(restart);
                Step::Lives(std::array::from_fn(|worker| {
                    (number & (1 << worker) != 0).then_some(lives[worker])
                }))
            }
        });
        steps.collect()
    })
}

proptest! {
    /// Design invariant 2 for one log: load is a function of the entries and the known lives; at rest nothing is left.
    #[test]
    fn invariant_2_loads_equal_a_naive_book_over_random_histories(steps in steps()) {
        let mut written = Written::with_lives(&[(0, 1), (1, 1), (2, 1)]);
        let (mut naive, mut known) = (Naive::default(), [Some(1), Some(1), Some(1)]);
        for step in steps {
            match step {
                Step::Write(entry) => {
                    naive.apply(&entry);
                    written.write(entry);
                }
                Step::Lives(lives) => {
                    known = lives;
                    let rows = (0..3).zip(lives).filter_map(|(worker, life)| Some((worker, life?)));
                    written.lives(&rows.collect::<Vec<_>>());
                }
            }
            for worker in 0..3 {
                prop_assert_eq!(written.load(worker), naive.load(worker, known[worker as usize]));
            }
        }
        for counter in 1..8 {
            written.write(released(counter));
        }
        prop_assert!(written.book.is_empty());
        prop_assert_eq!(written.book.kept_hashes(), 0);
        prop_assert!((0..3).all(|worker| written.load(worker) == RowLoad::default()));
    }
}
