//! What holds for every built-in policy: costs stay finite, the cheapest row wins, ties are even, decisions repeat.

use crate::{
    Catalogue,
    fixture::{decide, picked},
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerLoadInput, WorkerSelectionContext,
    WorkerSelectionPolicy, host,
};

fn build(name: &str, config: &KvRouterConfig) -> WorkerSelectionPolicy {
    let partition = RoutingPartitionRef::new("model", "default");
    Catalogue::built_in().get(name).unwrap().build(config, "aggregated", partition)
}

/// The policies that pick the row that costs least, `session-sticky` for requests without a session.
const CHEAPEST: [&str; 7] =
    ["active-requests", "adaptive", "additive", "least-loaded", "product", "session-sticky", "two-tier"];

/// Eight workers of two ranks, all alike; one worker of sixteen ranks for the policy that needs a pin to one.
fn equal_rows(name: &str, load: WorkerLoadInput) -> Vec<WorkerCandidate> {
    let ranks = if name == "direct" { 16 } else { 2 };
    let rows = (0..16_u32).map(|row| (u64::from(row / ranks), row % ranks));
    rows.map(|(worker, rank)| host::candidate(worker, rank).with_load(load)).collect()
}

/// A request that every policy has an answer to: it pins the worker of the first row.
fn pinned(prompt_tokens: u64) -> WorkerSelectionContext<'static> {
    host::ContextBuilder::new(prompt_tokens, 16).pinned_worker(Some(0)).build()
}

/// How often each row is picked in 800 requests that end before the next begins.
fn spread(name: &str, config: &KvRouterConfig, rows: &[WorkerCandidate]) -> [u32; 16] {
    let mut policy = build(name, config);
    let mut counts = [0; 16];
    for _ in 0..800 {
        counts[picked(&mut policy, &pinned(256), rows)] += 1;
    }
    counts
}

#[test]
fn b82_equal_rows_get_equal_shares_under_every_policy_and_seed() {
    for name in Catalogue::built_in().names() {
        let rows = equal_rows(name, host::load(16.0, 0, 16.0, 0));
        for seed in 0..5 {
            let counts = spread(name, &KvRouterConfig { seed, ..KvRouterConfig::default() }, &rows);
            assert!(counts.iter().all(|count| (25..=75).contains(count)), "{name} {seed}: {counts:?}");
        }
    }
}

#[test]
fn b82_the_first_choice_differs_between_seeds() {
    for name in Catalogue::built_in().names() {
        let rows = equal_rows(name, host::load(16.0, 0, 16.0, 0));
        let mut firsts = BTreeMap::<usize, u32>::new();
        for seed in 0..160 {
            let mut policy = build(name, &KvRouterConfig { seed, ..KvRouterConfig::default() });
            *firsts.entry(picked(&mut policy, &pinned(256), &rows)).or_default() += 1;
        }
        assert_eq!(firsts.len(), 16, "{name}: {firsts:?}");
    }
}

#[test]
fn b81_zero_weights_and_extreme_temperatures_spread_evenly() {
    let loads = [
        host::load(0.0, 0, 0.0, 0),
        host::load(16.0, 0, 16.0, 0),
        host::load(f64::MAX, u64::MAX, f64::MAX, u64::MAX),
    ];
    for temperature in [0.0, 1e-300, 1.0, 1e300] {
        let config = KvRouterConfig {
            overlap_score_credit: 0.0,
            prefill_load_scale: 0.0,
            host_cache_hit_weight: 0.0,
            disk_cache_hit_weight: 0.0,
            router_temperature: temperature,
            ..KvRouterConfig::default()
        };
        for name in Catalogue::built_in().names() {
            for load in loads {
                let counts = spread(name, &config, &equal_rows(name, load));
                assert!(counts.iter().all(|count| (25..=75).contains(count)), "{name}: {counts:?}");
            }
        }
    }
}

#[test]
fn preferred_taints_win_between_rows_that_are_otherwise_alike() {
    let config = KvRouterConfig::default();
    for name in CHEAPEST {
        let mut rows = equal_rows(name, host::load(16.0, 0, 16.0, 0));
        rows[11] = rows[11].with_preferred_taint_multiplier(0.5);
        assert_eq!(spread(name, &config, &rows)[11], 800, "{name}");
    }
}

/// Any finite number that is not negative, extremes included.
fn amount() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(f64::MAX / 4.0), Just(5e-324), 0.0..1e6, 0.0..f64::MAX / 4.0]
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), 0..4_u64, any::<u64>()]
}

/// Up to `most` ranks of one worker.
fn rows(most: usize) -> impl Strategy<Value = Vec<WorkerCandidate>> {
    let load = (amount(), count(), amount(), count());
    let cache = (amount(), amount(), amount());
    prop::collection::vec((load, cache, 1e-6..=1.0), 1..=most).prop_map(|rows| {
        let ranked = (0..).zip(rows);
        ranked
            .map(|(rank, (load, cache, multiplier))| {
                host::candidate(0, rank)
                    .with_load(host::load(load.0, load.1, load.2, load.3))
                    .with_cache(host::cache(cache.0, cache.1, cache.2))
                    .with_preferred_taint_multiplier(multiplier)
            })
            .collect()
    })
}

fn configuration() -> impl Strategy<Value = KvRouterConfig> {
    let scale = || prop_oneof![Just(0.0), Just(1e12), 0.0..4.0];
    (any::<u64>(), [scale(), scale(), scale(), scale()]).prop_map(|(seed, scales)| KvRouterConfig {
        seed,
        overlap_score_credit: scales[0],
        overlap_score_credit_decay: scales[1],
        prefill_load_scale: scales[2],
        decode_active_request_weight: scales[3],
        ..KvRouterConfig::default()
    })
}

fn context() -> impl Strategy<Value = WorkerSelectionContext<'static>> {
    let session = prop_oneof![Just(None), Just(Some("one")), Just(Some("two"))];
    (count(), prop_oneof![Just(1), Just(16), Just(u32::MAX)], session).prop_map(
        |(tokens, block_size, session)| {
            host::ContextBuilder::new(tokens, block_size).session(session).pinned_worker(Some(0)).build()
        },
    )
}

proptest! {
    #[test]
    fn b81_costs_are_finite_and_the_cheapest_row_wins(
        config in configuration(),
        context in context(),
        mut rows in rows(11),
    ) {
        prop_assert_eq!(config.validate(), Ok(()));
        let mut scratch = host::Scratch::default();
        for name in Catalogue::built_in().names() {
            let mut policy = build(name, &config);
            // Twice, for policies that remember. The host refuses what is not finite, so an answer says that all costs are.
            for _ in 0..2 {
                let pick = host::evaluate(&mut policy, &context, &mut rows, &mut scratch).unwrap();
                let lowest = scratch.costs().iter().copied().fold(f64::INFINITY, f64::min);
                let follows = name == "session-sticky" && context.session().is_some();
                prop_assert!(pick.cost == lowest || follows || !CHEAPEST.contains(&name), "{}", name);
            }
        }
    }

    #[test]
    fn decisions_repeat_for_the_same_seed(
        mut config in configuration(),
        temperature in prop_oneof![Just(0.0), Just(1e-300), Just(1e12), 0.0..2.0],
        requests in prop::collection::vec((context(), rows(7)), 1..12),
    ) {
        config.router_temperature = temperature;
        for name in Catalogue::built_in().names() {
            let (mut one, mut other) = (build(name, &config), build(name, &config));
            for (context, rows) in &requests {
                prop_assert_eq!(decide(&mut one, context, rows), decide(&mut other, context, rows), "{}", name);
            }
        }
    }
}
