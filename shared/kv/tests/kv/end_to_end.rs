//! Publisher → bad link → cursor → index: after repair, the index holds what the publisher announces.

use crate::world;
use proptest::prelude::*;
use std::collections::BTreeMap;
use switchtower_ids::{Incarnation, Row};
use switchtower_kv::cursor::{Cursor, Offer, SnapshotOffer};
use switchtower_kv::event::{KvEvent, RangeAnswer, SequencedEvent};
use switchtower_kv::index::{PrefixIndex, RowSlot};
use switchtower_kv::publisher::{Publisher, PublisherLimits};

/// The receiving side, as an ingestor runs it: one cursor per row, and a count of the repairs it asked for.
#[derive(Default)]
pub(crate) struct Receiver {
    pub(crate) index: PrefixIndex,
    cursors: BTreeMap<Row, (RowSlot, Cursor)>,
    ready: Vec<SequencedEvent>,
}

impl Receiver {
    pub(crate) fn begin(&mut self, row: Row, life: Incarnation) {
        let slot = self.slot(row);
        if self.cursor(row).begin(life) {
            self.index.drop_row(slot);
        }
    }

    pub(crate) fn end(&mut self, row: Row) {
        let slot = self.slot(row);
        self.cursor(row).end();
        self.index.drop_row(slot);
    }

    pub(crate) fn slot(&mut self, row: Row) -> RowSlot {
        let next = RowSlot(self.cursors.len() as u32);
        self.cursors.entry(row).or_insert((next, Cursor::new())).0
    }

    pub(crate) fn cursor(&mut self, row: Row) -> &mut Cursor {
        self.slot(row);
        &mut self.cursors.get_mut(&row).unwrap().1
    }

    pub(crate) fn receive(&mut self, row: Row, life: Incarnation, event: SequencedEvent) -> Offer {
        let slot = self.slot(row);
        let (_, cursor) = self.cursors.get_mut(&row).unwrap();
        let offer = cursor.offer(life, event, &mut self.ready);
        self.apply_ready(slot);
        offer
    }

    pub(crate) fn receive_answer(&mut self, row: Row, life: Incarnation, answer: RangeAnswer) {
        match answer {
            RangeAnswer::Events { events } => {
                for event in events {
                    self.receive(row, life, event);
                }
            }
            RangeAnswer::TooOld { snapshot } => {
                let slot = self.slot(row);
                let (_, cursor) = self.cursors.get_mut(&row).unwrap();
                if let SnapshotOffer::Replace { .. } =
                    cursor.offer_snapshot(life, snapshot.seq, &mut self.ready)
                {
                    self.index.replace(slot, &snapshot).unwrap();
                }
                self.apply_ready(slot);
            }
        }
    }

    fn apply_ready(&mut self, slot: RowSlot) {
        for event in self.ready.drain(..) {
            self.index.apply(slot, &event.event).unwrap();
        }
    }
}

/// What a link does to one event.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Lost,
    Twice,
    /// Arrives after this many later ones.
    Late(usize),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![6 => Just(Fate::Arrives), 2 => Just(Fate::Lost), 1 => Just(Fate::Twice), 2 => (1..9_usize).prop_map(Fate::Late)]
}

/// The events in the order in which they arrive.
fn delivered(log: &[SequencedEvent], fates: &[Fate]) -> Vec<SequencedEvent> {
    let mut arrivals = Vec::new();
    for (at, (event, fate)) in log.iter().zip(fates.iter().cycle()).enumerate() {
        match fate {
            Fate::Arrives => arrivals.push((at, event)),
            Fate::Lost => {}
            Fate::Twice => arrivals.extend([(at, event), (at, event)]),
            Fate::Late(by) => arrivals.push((at + by, event)),
        }
    }
    arrivals.sort_by_key(|(at, _)| *at);
    arrivals.into_iter().map(|(_, event)| event.clone()).collect()
}

const ROW: Row = Row::new(7, 1);
const LIFE: Incarnation = Incarnation(3);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Repairs are answered with the publisher's state of the end of the story, late, or never; a timer asks at last.
    #[test]
    fn loss_repeats_and_reordering_are_repaired(
        changes in prop::collection::vec(world::change(), 1..80),
        fates in prop::collection::vec(fate(), 1..40),
        ring_events in 0..60_usize,
        repair_after in prop::collection::vec(0..30_usize, 1..6),
    ) {
        let limits = PublisherLimits { ring_events, ..PublisherLimits::default() };
        let mut publisher = Publisher::new(limits);
        let mut log = Vec::new();
        for change in &changes {
            publisher.observe(change, &mut log).unwrap();
        }
        let mut receiver = Receiver::default();
        receiver.begin(ROW, LIFE);
        let mut answers: Vec<(usize, RangeAnswer)> = Vec::new();
        for (at, event) in delivered(&log, &fates).into_iter().enumerate() {
            if let Offer::Gap(gap) = receiver.receive(ROW, LIFE, event) {
                let delay = repair_after[answers.len() % repair_after.len()];
                answers.push((at + delay, publisher.range(gap.from)));
            }
            let due: Vec<_> = answers.extract_if(.., |(due, _)| *due <= at).collect();
            for (_, answer) in due {
                receiver.receive_answer(ROW, LIFE, answer);
            }
        }
        let from = receiver.cursor(ROW).applied() + 1;
        receiver.receive_answer(ROW, LIFE, publisher.range(from));
        for (_, late) in answers {
            receiver.receive_answer(ROW, LIFE, late);
        }

        prop_assert_eq!(receiver.cursor(ROW).applied(), publisher.last_seq());
        prop_assert_eq!(receiver.cursor(ROW).gap(), None);
        let (mut repaired, mut in_order) = (receiver.index, PrefixIndex::default());
        for event in &log {
            in_order.apply(RowSlot(0), &event.event).unwrap();
        }
        prop_assert_eq!(canonical(&mut repaired), canonical(&mut in_order));
        let mut announced = PrefixIndex::default();
        announced.replace(RowSlot(0), &publisher.snapshot()).unwrap();
        prop_assert_eq!(canonical(&mut announced), canonical(&mut in_order));
    }
}

/// One line per (row, tier, block), sorted: dumps may cut equal states into other chains.
pub(crate) fn canonical(index: &mut PrefixIndex) -> Vec<String> {
    let mut lines = Vec::new();
    for row in index.dump() {
        for run in row.runs {
            let parents = std::iter::once(run.parent).chain(run.blocks.iter().copied().map(Some));
            let links = parents.zip(&run.blocks).map(|(parent, block)| (row.slot, run.tier, parent, *block));
            lines.extend(links.map(|link| format!("{link:?}")));
        }
    }
    lines.sort();
    lines
}

#[test]
fn a_cleared_cache_is_cleared_at_the_other_end() {
    let mut publisher = Publisher::default();
    let mut log = Vec::new();
    let stored = KvEvent::Stored { tier: switchtower_ids::Tier::Disk, parent: None, blocks: world::path(9) };
    for change in [stored, KvEvent::Cleared] {
        publisher.observe(&change, &mut log).unwrap();
    }
    let mut receiver = Receiver::default();
    receiver.begin(ROW, LIFE);
    for event in log {
        assert_eq!(receiver.receive(ROW, LIFE, event), Offer::Applied);
    }
    assert!(receiver.index.dump().is_empty());
}
