//! Small traces whose figures can be worked out by hand, and random ones on which what must always hold is checked.

use proptest::prelude::*;
use std::sync::Arc;
use switchtower_policies::Catalogue;
use switchtower_policy::KvRouterConfig;
use switchtower_simulation::{
    Delay, FleetShape, NetworkDelays, Played, PolicyChoice, Record, ReplaySettings, Served, replay,
    trace::{ReadOptions, Trace},
};

/// One line of a trace.
fn line(at_ms: u64, prompt_tokens: u32, output_tokens: u32, ids: &[u64]) -> String {
    format!(
        "{{\"timestamp\":{at_ms},\"input_length\":{prompt_tokens},\"output_length\":{output_tokens},\"hash_ids\":{ids:?}}}\n"
    )
}

fn read(lines: &[String]) -> Trace {
    Trace::read(lines.concat().as_bytes(), ReadOptions::default()).unwrap()
}

/// A network that takes no time.
const AT_ONCE: NetworkDelays = {
    let none = Delay { least_us: 0, jitter_us: 0 };
    NetworkDelays { stream: none, bus: none }
};

fn settings(workers: u32, blocks_per_worker: u32, router: KvRouterConfig) -> ReplaySettings {
    let fleet = FleetShape { workers, ranks: 1, blocks_per_worker };
    ReplaySettings { fleet, router: Arc::new(router), network: AT_ONCE }
}

fn play(trace: &Trace, settings: &ReplaySettings, policy: &str) -> Played {
    let catalogue = Catalogue::built_in();
    let choice = PolicyChoice {
        name: policy.to_owned(),
        factory: catalogue.get(policy).unwrap(),
        fallback: catalogue.get("least-loaded").unwrap(),
    };
    replay(trace, settings, &choice, &mut |_| {}).unwrap()
}

fn served(played: &Played) -> Vec<Served> {
    let served = played.records.iter().map(|record| match record {
        Record::Served(served) => *served,
        Record::Rejected(label) => panic!("rejected: {label}"),
    });
    served.collect()
}

#[test]
fn one_row_does_what_the_step_formula_says() {
    // 6 ms, 32 µs per token, 0.0013 µs per pair, and for the token in decode 20 µs + 0.049 µs per token of context.
    let trace = read(&[line(0, 1_000, 2, &[0, 1]), line(1_000, 1_000, 1, &[0, 2])]);
    let played = play(&trace, &settings(1, 100, KvRouterConfig::default()), "additive");
    let prefill_us = (6_000.0_f64 + 32_000.0 + 0.001_3 * 500_500.0).round() as u64;
    let decode_us = (6_000.0_f64 + 20.0 + 0.049 * 1_001.0).round() as u64;
    let first = Served { ttft_us: prefill_us, e2e_us: prefill_us + decode_us, ..Served::default() };
    let pairs = 488.0 * 512.0 + 488.0 * 489.0 / 2.0;
    let again_us = (6_000.0_f64 + 32.0 * 488.0 + 0.001_3 * pairs).round() as u64;
    let second = Served { ttft_us: again_us, e2e_us: again_us, cached_tokens: 512, ..Served::default() };
    assert_eq!(served(&played), [first, second]);
    assert_eq!((played.result.hit_tokens, played.result.hit_of_oracle), (512, Some(1.0)));
}

#[test]
fn the_network_takes_its_time_there_and_back() {
    let trace = read(&[line(0, 1_000, 1, &[0, 1])]);
    let mut settings = settings(1, 100, KvRouterConfig::default());
    let at_once = served(&play(&trace, &settings, "additive"))[0];
    settings.network.stream.least_us = 700;
    let delayed = served(&play(&trace, &settings, "additive"))[0];
    assert_eq!(delayed.ttft_us, at_once.ttft_us + 1_400);
}

#[test]
fn the_router_learns_the_cache_from_events_and_not_sooner() {
    // Each family asks twice, half a second apart, on an idle fleet.
    let asked = |family: u64, at_ms| line(at_ms, 1_024, 1, &[family, family]);
    let lines =
        (0..20).flat_map(|family| [asked(family, family * 1_000), asked(family, family * 1_000 + 500)]);
    let trace = read(&lines.collect::<Vec<_>>());
    let mut settings = settings(4, 1_000, KvRouterConfig::default());
    let hits = |settings: &ReplaySettings| {
        let played = play(&trace, settings, "additive");
        served(&played).iter().filter(|served| served.cached_tokens > 0).count()
    };
    assert_eq!(hits(&settings), 20, "the second request follows the first");
    settings.network.bus.least_us = 700_000;
    let late = hits(&settings);
    assert!((1..15).contains(&late), "what is announced too late is found by chance, one in four: {late}");
}

#[test]
fn waiting_in_the_router_counts_and_ends_in_a_rejection() {
    let burst: Vec<String> = (0..200).map(|id| line(0, 8_000, 1, &[id; 16])).collect();
    let router = KvRouterConfig {
        queue_threshold: Some(0.5),
        queue_limit_requests: 150,
        queue_wait_ms_max: 10_000,
        ..KvRouterConfig::default()
    };
    let played = play(&read(&burst), &settings(2, 1_000, router), "least-loaded");
    let count = |label| played.records.iter().filter(|record| **record == Record::Rejected(label)).count();
    assert_eq!(count("queue_full"), 48, "two are placed at once and 150 wait");
    assert!(count("deadline_exceeded") > 0);
    assert_eq!(played.result.rejected as usize, count("queue_full") + count("deadline_exceeded"));
    let wait = played.result.queue_wait_ms;
    assert!(wait.p99 <= Some(10_000.0) && wait.p50 > Some(1_000.0), "{wait:?}");
    assert!(played.at_rest);
}

#[test]
fn what_an_engine_cannot_hold_is_rejected() {
    let trace = read(&[line(0, 5_000, 1, &[0; 10]), line(1, 100, 1, &[1])]);
    let played = play(&trace, &settings(1, 9, KvRouterConfig::default()), "additive");
    assert_eq!(played.records[0], Record::Rejected("engine"));
    assert!(matches!(played.records[1], Record::Served(_)));
    assert!(played.at_rest, "the booking of a refused request is released");
}

#[test]
fn ranks_are_rows_of_their_own() {
    let trace = read(&(0..8).map(|id| line(0, 600, 1, &[id, id])).collect::<Vec<_>>());
    let mut settings = settings(2, 100, KvRouterConfig::default());
    settings.fleet.ranks = 2;
    let mut places: Vec<u32> =
        served(&play(&trace, &settings, "round-robin")).iter().map(|s| s.place).collect();
    places.sort_unstable();
    assert_eq!(places, [0, 0, 1, 1, 2, 2, 3, 3]);
}

/// Requests of few families, so that they share prefixes: (gap in ms, family, whole blocks, tokens beyond, output).
fn requests() -> impl Strategy<Value = Vec<(u64, u64, u32, u32, u32)>> {
    prop::collection::vec((0..80_u64, 0..5_u64, 0..12_u32, 1..512_u32, 1..700_u32), 1..60)
}

fn trace_of(requests: &[(u64, u64, u32, u32, u32)]) -> Trace {
    let mut at_ms = 0;
    let lines = requests.iter().enumerate().map(|(number, (gap_ms, family, whole, rest, output))| {
        at_ms += gap_ms;
        let shared = (0..u64::from(*whole)).map(|block| family * 100 + block);
        let ids: Vec<u64> = shared.chain([1_000_000 + number as u64]).collect();
        line(at_ms, whole * 512 + rest, *output, &ids)
    });
    read(&lines.collect::<Vec<_>>())
}

proptest! {
    /// Design invariants 2 and 5 from outside: every request ends, nothing stays booked. And the figures agree with
    /// each other: what rows computed is what requests did not hit, and nothing hits more than the oracle.
    #[test]
    fn every_request_ends_and_the_figures_agree(
        requests in requests(),
        (workers, blocks) in (1..4_u32, 16..60_u32),
        queue_threshold in prop::option::of(0.1..2.0_f64),
        policy in prop::sample::select(Catalogue::built_in().names().map(str::to_owned).collect::<Vec<_>>()),
        seed: u64,
    ) {
        let trace = trace_of(&requests);
        let queue_wait_ms_max = 86_400_000;
        let router = KvRouterConfig { queue_threshold, queue_wait_ms_max, seed, ..KvRouterConfig::default() };
        let settings = ReplaySettings { network: NetworkDelays::default(), ..settings(workers, blocks, router) };
        let played = play(&trace, &settings, &policy);
        prop_assert!(played.at_rest);
        prop_assert_eq!((played.records.len(), played.result.rejected), (requests.len(), 0));
        let mut uncached = 0;
        for (request, served) in trace.requests.iter().zip(served(&played)) {
            prop_assert!(served.queue_wait_us < served.ttft_us && served.ttft_us <= served.e2e_us);
            prop_assert!(served.place < workers && served.cached_tokens % 512 == 0);
            prop_assert!(served.cached_tokens < request.prompt_tokens);
            uncached += u64::from(request.prompt_tokens - served.cached_tokens);
        }
        prop_assert_eq!(uncached + played.result.hit_tokens, trace.input_tokens());
        prop_assert!(played.result.hit_ratio <= played.result.oracle_hit_ratio);
        let series = &played.series;
        prop_assert!(series.samples.iter().all(|sample| sample.len() == workers as usize));
        let computed: u64 = series.samples.last().unwrap().iter().map(|row| row.uncached_tokens).sum();
        prop_assert_eq!(computed, uncached, "the last sample is taken when all have ended");
        if let Some(imbalance) = played.result.imbalance {
            prop_assert!((1.0 - 1e-9..=f64::from(workers) + 1e-9).contains(&imbalance));
        }
    }

    /// Design invariant 6: the same inputs give the same decisions.
    #[test]
    fn the_same_seed_gives_the_same_records(requests in requests(), seed: u64) {
        let trace = trace_of(&requests);
        let router = KvRouterConfig { seed, ..KvRouterConfig::default() };
        let settings = ReplaySettings { network: NetworkDelays::default(), ..settings(3, 40, router) };
        let (one, other) = (play(&trace, &settings, "random"), play(&trace, &settings, "random"));
        prop_assert_eq!(one.records, other.records);
        prop_assert_eq!(one.series, other.series);
    }
}
