//! Random engine reports, in any order: the log the publisher makes of them is always acceptable, and says the
//! largest prefix-closed part of what the engine holds.

use crate::model::Model;
use crate::world;
use proptest::prelude::*;
use std::collections::BTreeMap;
use switchtower_ids::{SequenceHash, Tier};
use switchtower_kv::event::{KvEvent, RangeAnswer, SequencedEvent};
use switchtower_kv::publisher::{Publisher, PublisherLimits};

/// The engine's own view: which tiers hold a block, and where it belongs.
#[derive(Default)]
struct Engine {
    held: BTreeMap<SequenceHash, (Option<SequenceHash>, Vec<Tier>)>,
}

impl Engine {
    fn observe(&mut self, change: &KvEvent) {
        match change {
            KvEvent::Stored { tier, parent, blocks } => {
                let mut before = *parent;
                for block in blocks {
                    let (_, tiers) = self.held.entry(*block).or_insert((before, Vec::new()));
                    tiers.retain(|known| known != tier);
                    tiers.push(*tier);
                    before = Some(*block);
                }
            }
            KvEvent::Removed { tier, blocks } => {
                for block in blocks {
                    if let Some((_, tiers)) = self.held.get_mut(block) {
                        tiers.retain(|known| known != tier);
                    }
                }
                self.held.retain(|_, (_, tiers)| !tiers.is_empty());
            }
            KvEvent::Cleared => self.held.clear(),
            KvEvent::Unknown => {}
        }
    }

    fn is_visible(&self, block: SequenceHash) -> bool {
        self.held.get(&block).is_some_and(|(parent, _)| parent.is_none_or(|parent| self.is_visible(parent)))
    }

    /// The visible part, as a naive index would hold it in row 0.
    fn visible(&self) -> Model {
        let mut model = Model::default();
        model.apply(0, &KvEvent::Cleared).unwrap();
        let mut pending: Vec<_> = self.held.keys().copied().filter(|block| self.is_visible(*block)).collect();
        while !pending.is_empty() {
            pending.retain(|block| {
                let (parent, tiers) = &self.held[block];
                let stored =
                    |tier: &Tier| KvEvent::Stored { tier: *tier, parent: *parent, blocks: vec![*block] };
                !tiers.iter().all(|tier| model.apply(0, &stored(tier)).is_ok())
            });
        }
        model
    }
}

fn replay(events: &[SequencedEvent], model: &mut Model) {
    for event in events {
        model.apply(0, &event.event).unwrap_or_else(|_| panic!("the log is not acceptable: {event:?}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn the_log_says_what_is_visible(changes in prop::collection::vec(world::change(), 1..80)) {
        let mut publisher = Publisher::default();
        let (mut engine, mut reader) = (Engine::default(), Model::default());
        reader.apply(0, &KvEvent::Cleared).unwrap();
        let mut log = Vec::new();
        for change in &changes {
            let before = log.len();
            publisher.observe(change, &mut log).unwrap();
            engine.observe(change);
            replay(&log[before..], &mut reader);
            let visible = engine.visible();
            prop_assert_eq!(&reader, &visible);
            prop_assert_eq!(publisher.visible_blocks(), visible.block_count(0));
        }
        prop_assert!(log.iter().map(|event| event.seq).eq(1..=publisher.last_seq()));
        prop_assert_eq!(publisher.range(1), RangeAnswer::Events { events: log });
        let mut copy = Model::default();
        copy.apply(0, &KvEvent::Cleared).unwrap();
        copy.replace(0, &publisher.snapshot().blocks).unwrap();
        if reader.block_count(0) > 0 {
            prop_assert_eq!(copy, reader);
        }
    }

    /// With hardly any room to park, and nonsense among the reports, less is said, but never too much.
    #[test]
    fn a_cramped_publisher_never_says_too_much(changes in prop::collection::vec(world::event(), 1..80)) {
        let limits = PublisherLimits { parked_blocks: 3, held_blocks: 25, ring_events: 4, ring_blocks: 30 };
        let mut publisher = Publisher::new(limits);
        let (mut engine, mut reader) = (Engine::default(), Model::default());
        // After a block was put where it does not belong, only the log's own promises are left to check.
        let mut honest = true;
        for change in &changes {
            honest &= !world::is_lie(change);
            let mut news = Vec::new();
            if publisher.observe(change, &mut news).is_ok() {
                engine.observe(change);
            }
            replay(&news, &mut reader);
            if honest {
                let visible = engine.visible();
                for query in world::queries() {
                    let (said, held) = (reader.overlap(0, &query).total(), visible.overlap(0, &query).total());
                    prop_assert!(said <= held);
                }
            }
            prop_assert!(publisher.parked_blocks() <= 3 && publisher.visible_blocks() <= 25);
            prop_assert_eq!(publisher.visible_blocks(), reader.block_count(0));
        }
    }
}
