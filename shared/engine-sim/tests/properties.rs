//! Random histories of submissions, cancellations and time, checked after every step: the cache stays inside its
//! capacity and prefix-closed, the KV events tell exactly what is cached, and every request ends.

use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
};
use switchtower_engine_sim::{Engine, EngineEvent, EngineParameters, RequestSpec};
use switchtower_ids::SequenceHash;
use switchtower_kv::{event::KvEvent, hash::HashSpace};

#[derive(Clone, Debug)]
enum Act {
    /// `family` chooses the tokens, so that requests of one family share prefixes.
    Submit {
        family: u32,
        prompt: u32,
        output: u32,
        named: bool,
    },
    Cancel {
        nth: usize,
    },
    Wait {
        us: u64,
    },
    NextEvent,
    ClearCache,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..3u32, 1..40u32, 1..20u32, prop::bool::weighted(0.8))
            .prop_map(|(family, prompt, output, named)| Act::Submit { family, prompt, output, named }),
        1 => (0..100usize).prop_map(|nth| Act::Cancel { nth }),
        2 => (0..100_000u64).prop_map(|us| Act::Wait { us }),
        6 => Just(Act::NextEvent),
        1 => Just(Act::ClearCache),
    ]
}

fn parameters() -> impl Strategy<Value = EngineParameters> {
    (1..6u32, 20..60u32, 1..6u32, 1..20u32).prop_map(
        |(block_size, total_blocks, max_batch, prefill_tokens_per_step)| EngineParameters {
            block_size,
            total_blocks,
            max_batch,
            prefill_tokens_per_step,
            max_waiting: 50,
            ..EngineParameters::default()
        },
    )
}

/// An engine, and what follows from its events alone.
struct Watched {
    engine: Engine,
    now_us: u64,
    next_id: u64,
    /// Accepted requests that have not ended, with output length and tokens seen.
    live: BTreeMap<u64, (u32, u32)>,
    /// The cache according to the events: block → parent.
    told: BTreeMap<SequenceHash, Option<SequenceHash>>,
    history: Vec<EngineEvent>,
}

impl Watched {
    fn new(parameters: EngineParameters) -> Self {
        Self {
            engine: Engine::new(parameters).expect("valid parameters"),
            now_us: 0,
            next_id: 0,
            live: BTreeMap::new(),
            told: BTreeMap::new(),
            history: Vec::new(),
        }
    }

    fn apply(&mut self, act: &Act) {
        let mut events = Vec::new();
        match act {
            Act::Submit { family, prompt, output, named } => self.submit(*family, *prompt, *output, *named),
            Act::Cancel { nth } => {
                if let Some(id) = self.live.keys().nth(*nth % self.live.len().max(1)).copied() {
                    assert!(self.engine.cancel(id));
                    self.live.remove(&id);
                }
            }
            Act::Wait { us } => self.now_us += us,
            Act::NextEvent => self.now_us = self.engine.next_event_at().unwrap_or(0).max(self.now_us),
            Act::ClearCache => drop(self.engine.clear_cache(&mut events)),
        }
        if matches!(act, Act::Wait { .. } | Act::NextEvent) {
            self.engine.advance(self.now_us, &mut events);
        }
        events.iter().for_each(|event| self.see(event));
        self.history.append(&mut events);
        self.check();
    }

    fn submit(&mut self, family: u32, prompt: u32, output: u32, named: bool) {
        let id = self.next_id;
        self.next_id += 1;
        let tokens = |from: u32, to: u32| (from..to).map(|at| family * 1_000 + at).collect::<Vec<_>>();
        let block_size = NonZeroU32::new(self.engine.parameters().block_size).expect("not zero");
        let (prompt, output_tokens) = (tokens(0, prompt), tokens(prompt, prompt + output));
        let space = HashSpace::new(None, None);
        let mut spec = RequestSpec::from_tokens(id, &prompt, &output_tokens, block_size, space);
        if !named {
            spec.blocks.truncate(2);
        }
        if self.engine.submit(self.now_us, spec).is_ok() {
            self.live.insert(id, (output, 0));
        }
    }

    fn see(&mut self, event: &EngineEvent) {
        match event {
            EngineEvent::FirstToken { id, .. } => self.see_token(*id, 0),
            EngineEvent::Token { id, index } => self.see_token(*id, *index),
            EngineEvent::Finished { id } => {
                let (output, seen) = self.live.remove(id).expect("only live requests finish");
                assert_eq!(output, seen, "request {id} finishes with all its tokens");
            }
            EngineEvent::Kv(KvEvent::Stored { parent, blocks, .. }) => self.see_stored(*parent, blocks),
            EngineEvent::Kv(KvEvent::Removed { blocks, .. }) => {
                for hash in blocks {
                    assert!(
                        self.told.values().all(|parent| *parent != Some(*hash)),
                        "it has no child any more"
                    );
                    assert!(self.told.remove(hash).is_some(), "only what is there is removed");
                }
            }
            EngineEvent::Kv(KvEvent::Cleared) => self.told.clear(),
            EngineEvent::Kv(KvEvent::Unknown) => panic!("an engine knows what it says"),
        }
    }

    fn see_token(&mut self, id: u64, index: u32) {
        let (_, seen) = self.live.get_mut(&id).expect("only live requests produce tokens");
        assert_eq!(*seen, index, "tokens of request {id} come in order, once");
        *seen += 1;
    }

    fn see_stored(&mut self, parent: Option<SequenceHash>, blocks: &[SequenceHash]) {
        assert!(!blocks.is_empty());
        assert!(parent.is_none_or(|hash| self.told.contains_key(&hash)), "the parent is there");
        let mut above = parent;
        for hash in blocks {
            assert!(self.told.insert(*hash, above).is_none(), "a block is stored once");
            above = Some(*hash);
        }
    }

    fn check(&self) {
        let load = self.engine.load();
        assert!(
            u64::from(load.blocks_used) + u64::from(load.blocks_evictable) <= u64::from(load.blocks_total)
        );
        let cached: BTreeMap<_, _> = self.engine.cached_blocks().collect();
        assert!(cached.len() <= load.blocks_total as usize);
        assert_eq!(cached, self.told, "the events tell the cache");
        let names: BTreeSet<_> = cached.keys().copied().collect();
        assert!(cached.values().flatten().all(|parent| names.contains(parent)), "prefix-closed");
        assert_eq!(load.running as usize + load.waiting as usize, self.live.len());
    }

    fn run_out(&mut self) {
        while self.engine.next_event_at().is_some() {
            self.apply(&Act::NextEvent);
        }
    }
}

proptest! {
    #[test]
    fn any_history_keeps_the_books(parameters in parameters(), acts in prop::collection::vec(act(), 1..150)) {
        let mut watched = Watched::new(parameters);
        acts.iter().for_each(|act| watched.apply(act));
        watched.run_out();
        prop_assert!(watched.live.is_empty(), "every accepted request ended");
        prop_assert_eq!(watched.engine.load().blocks_used, 0);
    }

    #[test]
    fn the_same_history_gives_the_same_events(
        parameters in parameters(),
        acts in prop::collection::vec(act(), 1..80),
    ) {
        let play = || {
            let mut watched = Watched::new(parameters.clone());
            acts.iter().for_each(|act| watched.apply(act));
            watched.run_out();
            watched.history
        };
        prop_assert_eq!(play(), play());
    }

    #[test]
    fn any_numbers_are_refused_or_served(
        counts in prop::array::uniform5(prop_oneof![Just(0), Just(1), Just(u32::MAX), any::<u32>()]),
        durations in prop::array::uniform5(prop_oneof![Just(f64::NAN), Just(0.0), Just(1e9), any::<f64>()]),
        (prompt_tokens, output_tokens) in (any::<u32>(), 0..4u32),
        now_us in any::<u64>(),
    ) {
        let [block_size, total_blocks, max_batch, max_waiting, prefill_tokens_per_step] = counts;
        let [base_us, us_per_prefill_token, us_per_attention_pair, us_per_sequence, us_per_context_token] = durations;
        let parameters = EngineParameters {
            block_size, total_blocks, max_batch, max_waiting,
            // A 4-billion-token prompt one token at a time is legal and slow; what is tested are the sums.
            prefill_tokens_per_step: prefill_tokens_per_step.saturating_add(u32::MAX / 2),
            base_us, us_per_prefill_token, us_per_attention_pair, us_per_sequence, us_per_context_token,
        };
        let Ok(mut engine) = Engine::new(parameters) else { return Ok(()) };
        let mut events = Vec::new();
        let spec = RequestSpec { id: u64::MAX, prompt_tokens, output_tokens, blocks: Vec::new() };
        if engine.submit(now_us, spec).is_ok() {
            engine.advance(u64::MAX, &mut events);
            prop_assert_eq!(events.last(), Some(&EngineEvent::Finished { id: u64::MAX }));
        }
    }
}
