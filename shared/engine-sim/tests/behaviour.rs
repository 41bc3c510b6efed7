//! What one engine does in situations that can be told in a sentence each. Random histories: `properties.rs`.

use std::num::NonZeroU32;
use switchtower_engine_sim::{Engine, EngineEvent, EngineParameters, RequestSpec, SubmitError};
use switchtower_ids::{SequenceHash, Tier};
use switchtower_kv::{event::KvEvent, hash::HashSpace};

const BLOCK: u32 = 4;

fn engine(total_blocks: u32) -> Engine {
    let parameters = EngineParameters { block_size: BLOCK, total_blocks, ..EngineParameters::default() };
    Engine::new(parameters).expect("valid parameters")
}

fn request(id: u64, prompt: &[u32], output: &[u32]) -> RequestSpec {
    let block_size = NonZeroU32::new(BLOCK).expect("not zero");
    RequestSpec::from_tokens(id, prompt, output, block_size, HashSpace::new(None, None))
}

/// Runs until idle; events with their times.
fn run(engine: &mut Engine) -> Vec<(u64, EngineEvent)> {
    let (mut all, mut events) = (Vec::new(), Vec::new());
    while let Some(at_us) = engine.next_event_at() {
        engine.advance(at_us, &mut events);
        all.extend(events.drain(..).map(|event| (at_us, event)));
    }
    all
}

fn cached_tokens(events: &[(u64, EngineEvent)], request: u64) -> Option<u32> {
    events.iter().find_map(|(_, event)| match event {
        EngineEvent::FirstToken { id, cached_tokens } if *id == request => Some(*cached_tokens),
        _ => None,
    })
}

#[test]
fn a_request_yields_its_tokens_in_order_and_leaves_nothing_behind_but_its_cache() {
    let mut engine = engine(100);
    engine.submit(10, request(1, &[1; 10], &[2; 5])).unwrap();
    let events = run(&mut engine);
    let told: Vec<_> = events.iter().map(|(_, e)| e).filter(|e| !matches!(e, EngineEvent::Kv(_))).collect();
    assert_eq!(told.len(), 6);
    assert_eq!(told[0], &EngineEvent::FirstToken { id: 1, cached_tokens: 0 });
    assert_eq!(told[4], &EngineEvent::Token { id: 1, index: 4 });
    assert_eq!(told[5], &EngineEvent::Finished { id: 1 });
    assert!(events.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    let load = engine.load();
    assert_eq!((load.running, load.waiting, load.blocks_used, load.prefill_tokens_waiting), (0, 0, 0, 0));
    assert_eq!(
        load.blocks_evictable, 3,
        "14 tokens were computed (the last output token never is): 3 full blocks"
    );
}

#[test]
fn a_second_turn_finds_the_first_turns_prompt_and_output() {
    let mut engine = engine(100);
    let (first, reply): (Vec<u32>, Vec<u32>) = ((0..10).collect(), (100..107).collect());
    engine.submit(0, request(1, &first, &reply)).unwrap();
    run(&mut engine);
    let second: Vec<u32> = [&first[..], &reply, &[7, 8, 9]].concat();
    engine.submit(0, request(2, &second, &[1])).unwrap();
    assert_eq!(cached_tokens(&run(&mut engine), 2), Some(16));
}

#[test]
fn a_hit_never_covers_the_whole_prompt() {
    let mut engine = engine(100);
    engine.submit(0, request(1, &[5; 8], &[6; 4])).unwrap();
    run(&mut engine);
    engine.submit(0, request(2, &[5; 8], &[6; 4])).unwrap();
    assert_eq!(cached_tokens(&run(&mut engine), 2), Some(4));
}

#[test]
fn a_cached_prefix_brings_the_first_token_sooner() {
    let mut engine = engine(4_000);
    let prompt: Vec<u32> = (0..8_000).collect();
    engine.submit(0, request(1, &prompt, &[1])).unwrap();
    let cold_us = run(&mut engine).last().unwrap().0;
    engine.submit(cold_us, request(2, &prompt, &[1])).unwrap();
    let warm_us = run(&mut engine).last().unwrap().0 - cold_us;
    assert!(warm_us * 10 < cold_us, "{warm_us} µs against {cold_us} µs");
}

#[test]
fn long_prompts_are_computed_in_chunks_between_which_others_decode() {
    let parameters = EngineParameters { prefill_tokens_per_step: 100, ..EngineParameters::default() };
    let mut engine = Engine::new(parameters).unwrap();
    let plain =
        |id, prompt_tokens, output_tokens| RequestSpec { id, prompt_tokens, output_tokens, blocks: vec![] };
    engine.submit(0, plain(1, 10, 50)).unwrap();
    engine.submit(0, plain(2, 1_000, 1)).unwrap();
    let events = run(&mut engine);
    let at = |wanted: EngineEvent| events.iter().position(|(_, event)| *event == wanted).unwrap();
    let long = at(EngineEvent::FirstToken { id: 2, cached_tokens: 0 });
    assert!(
        at(EngineEvent::Token { id: 1, index: 8 }) < long,
        "the short one is not held up by the long prefill"
    );
    assert!(long < at(EngineEvent::Finished { id: 1 }));
}

#[test]
fn the_youngest_steps_aside_when_blocks_run_out_and_everybody_finishes() {
    let mut engine = engine(12);
    for id in 0..3 {
        engine.submit(0, request(id, &[id as u32 + 1; 8], &[9; 28])).unwrap();
    }
    let events = run(&mut engine);
    let finished: Vec<u64> = events
        .iter()
        .filter_map(|(_, event)| match event {
            EngineEvent::Finished { id } => Some(*id),
            _ => None,
        })
        .collect();
    assert_eq!(finished, [0, 1, 2]);
    for id in 0..3 {
        let tokens = events.iter().filter(|(_, event)| match event {
            EngineEvent::FirstToken { id: of, .. } | EngineEvent::Token { id: of, .. } => *of == id,
            _ => false,
        });
        assert_eq!(tokens.count(), 28, "stepping aside neither loses nor repeats a token");
    }
}

#[test]
fn cancelling_frees_blocks_at_once_in_the_queue_and_in_the_batch() {
    let mut engine = engine(100);
    let mut events = Vec::new();
    engine.submit(0, request(1, &[1; 40], &[2; 40])).unwrap();
    engine.advance(0, &mut events);
    engine.submit(0, request(2, &[3; 40], &[4; 40])).unwrap();
    assert_eq!((engine.load().running, engine.load().waiting, engine.load().blocks_used), (1, 1, 10));
    assert!(engine.cancel(1));
    assert_eq!((engine.load().running, engine.load().blocks_used), (0, 0));
    assert!(engine.cancel(2) && !engine.cancel(2));
    let later = run(&mut engine);
    assert!(later.is_empty(), "nothing is heard of cancelled requests: {later:?}");
    engine.submit(0, request(1, &[1; 4], &[2])).unwrap();
    assert_eq!(
        run(&mut engine).last().map(|(_, event)| event.clone()),
        Some(EngineEvent::Finished { id: 1 })
    );
}

#[test]
fn what_can_never_finish_is_refused_with_the_numbers() {
    let mut engine = engine(10);
    let refuse = |engine: &mut Engine, spec| engine.submit(0, spec).unwrap_err();
    assert_eq!(refuse(&mut engine, request(1, &[], &[1])), SubmitError::EmptyPrompt { id: 1 });
    assert_eq!(refuse(&mut engine, request(1, &[1], &[])), SubmitError::NoOutput { id: 1 });
    let large = refuse(&mut engine, request(1, &[1; 38], &[1; 3]));
    assert_eq!(large, SubmitError::TooLarge { id: 1, needed: 11, total: 10 });
    let huge = RequestSpec { id: 1, prompt_tokens: u32::MAX, output_tokens: u32::MAX, blocks: vec![] };
    assert!(matches!(refuse(&mut engine, huge), SubmitError::TooLarge { .. }));
    let blocks = vec![SequenceHash(1), SequenceHash(2)];
    let many = RequestSpec { id: 1, prompt_tokens: 4, output_tokens: 1, blocks };
    assert_eq!(refuse(&mut engine, many), SubmitError::TooManyBlocks { id: 1, given: 2, full: 1 });
    let blocks = vec![SequenceHash(1), SequenceHash(1)];
    let twice = RequestSpec { id: 1, prompt_tokens: 8, output_tokens: 1, blocks };
    assert_eq!(refuse(&mut engine, twice), SubmitError::RepeatedBlock { id: 1, hash: 1 });
    engine.submit(0, request(1, &[1], &[1])).unwrap();
    assert_eq!(refuse(&mut engine, request(1, &[1], &[1])), SubmitError::RepeatedId { id: 1 });
}

#[test]
fn the_queue_is_bounded() {
    let parameters = EngineParameters { max_waiting: 2, ..EngineParameters::default() };
    let mut engine = Engine::new(parameters).unwrap();
    engine.submit(0, request(1, &[1], &[1])).unwrap();
    engine.submit(0, request(2, &[1], &[1])).unwrap();
    let refused = engine.submit(0, request(3, &[1], &[1])).unwrap_err();
    assert_eq!(refused, SubmitError::QueueFull { id: 3, limit: 2 });
    run(&mut engine);
    engine.submit(0, request(3, &[1], &[1])).unwrap();
}

#[test]
fn a_driver_that_lags_sees_the_same_story() {
    let story = |lag_us: u64| {
        let (mut engine, mut events) = (engine(100), Vec::new());
        engine.submit(0, request(1, &[1; 9], &[2; 9])).unwrap();
        engine.advance(1_000, &mut events);
        engine.submit(20_000 + lag_us, request(2, &[3; 9], &[4; 9])).unwrap();
        engine.advance(10_000_000, &mut events);
        events
    };
    assert_eq!(story(0), story(0));
    let mut late = story(3_000_000);
    let told = |event: &EngineEvent| !matches!(event, EngineEvent::Kv(_));
    late.retain(told);
    assert_eq!(
        late.iter().position(|e| *e == EngineEvent::Finished { id: 1 }),
        Some(9),
        "2 came after 1 was done"
    );
}

#[test]
fn clearing_the_cache_needs_an_idle_engine_and_is_told() {
    let (mut engine, mut events) = (engine(100), Vec::new());
    engine.submit(0, request(1, &[1; 9], &[2; 9])).unwrap();
    engine.advance(0, &mut events);
    assert!(!engine.clear_cache(&mut events));
    run(&mut engine);
    events.clear();
    assert!(engine.clear_cache(&mut events));
    assert_eq!(events, [EngineEvent::Kv(KvEvent::Cleared)]);
    assert_eq!(engine.cached_blocks().count(), 0);
}

#[test]
fn stored_names_the_parent_and_removed_names_descendants_first() {
    let mut engine = engine(4);
    engine.submit(0, request(1, &[1; 12], &[2; 1])).unwrap();
    let stored = run(&mut engine);
    let hashes = request(1, &[1; 12], &[2; 1]).blocks;
    let expected = KvEvent::Stored { tier: Tier::Device, parent: None, blocks: hashes.clone() };
    assert_eq!(stored[0].1, EngineEvent::Kv(expected));
    engine.submit(0, request(2, &[3; 12], &[2; 1])).unwrap();
    let removed = run(&mut engine);
    let expected = KvEvent::Removed { tier: Tier::Device, blocks: vec![hashes[2], hashes[1]] };
    assert_eq!(
        removed[0].1,
        EngineEvent::Kv(expected),
        "13 tokens need 4 blocks; 1 was free, so is one more"
    );
}
