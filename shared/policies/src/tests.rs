//! What holds for every built-in policy: costs stay finite, the cheapest row wins, ties are even, decisions repeat.

use crate::{
    Catalogue,
    fixture::{decide, request},
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerSelectionContext, WorkerSelectionPolicy, host,
};

fn build(name: &str, config: &KvRouterConfig) -> WorkerSelectionPolicy {
    let partition = RoutingPartitionRef::new("model", "default");
    Catalogue::built_in().get(name).unwrap().build(config, "aggregated", partition)
}

/// Eight workers of two ranks, all alike.
fn equal_rows(load: switchtower_policy::WorkerLoadInput) -> Vec<WorkerCandidate> {
    let ranks = (0..8).flat_map(|worker| [(worker, 0), (worker, 1)]);
    ranks.map(|(worker, rank)| host::candidate(worker, rank).with_load(load)).collect()
}

/// How often each row is picked in 800 requests that end before the next begins.
fn spread(name: &str, config: &KvRouterConfig, rows: &[WorkerCandidate]) -> [u32; 16] {
    let mut policy = build(name, config);
    let mut counts = [0; 16];
    for _ in 0..800 {
        counts[decide(&mut policy, &request(256), rows).unwrap().row] += 1;
    }
    counts
}

#[test]
fn b82_equal_rows_get_equal_shares_under_every_policy_and_seed() {
    let rows = equal_rows(host::load(16.0, 0, 16.0, 0));
    for name in Catalogue::built_in().names() {
        for seed in 0..5 {
            let counts = spread(name, &KvRouterConfig { seed, ..KvRouterConfig::default() }, &rows);
            assert!(counts.iter().all(|count| (25..=75).contains(count)), "{name} {seed}: {counts:?}");
        }
    }
}

#[test]
fn b82_the_first_choice_differs_between_seeds() {
    let rows = equal_rows(host::load(16.0, 0, 16.0, 0));
    for name in Catalogue::built_in().names() {
        let mut firsts = BTreeMap::<usize, u32>::new();
        for seed in 0..160 {
            let mut policy = build(name, &KvRouterConfig { seed, ..KvRouterConfig::default() });
            *firsts.entry(decide(&mut policy, &request(256), &rows).unwrap().row).or_default() += 1;
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
                let counts = spread(name, &config, &equal_rows(load));
                assert!(counts.iter().all(|count| (25..=75).contains(count)), "{name}: {counts:?}");
            }
        }
    }
}

#[test]
fn preferred_taints_win_between_rows_that_are_otherwise_alike() {
    let config = KvRouterConfig::default();
    let mut rows = equal_rows(host::load(16.0, 0, 16.0, 0));
    rows[11] = rows[11].with_preferred_taint_multiplier(0.5);
    for name in ["active-requests", "additive", "least-loaded", "product"] {
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

fn row() -> impl Strategy<Value = WorkerCandidate> {
    let load = (amount(), count(), amount(), count());
    let cache = (amount(), amount(), amount());
    (load, cache, 1e-6..=1.0).prop_map(|(load, cache, multiplier)| {
        host::candidate(0, 0)
            .with_load(host::load(load.0, load.1, load.2, load.3))
            .with_cache(host::cache(cache.0, cache.1, cache.2))
            .with_preferred_taint_multiplier(multiplier)
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
    (count(), prop_oneof![Just(1), Just(16), Just(u32::MAX)])
        .prop_map(|(tokens, block_size)| host::ContextBuilder::new(tokens, block_size).build())
}

proptest! {
    #[test]
    fn b81_costs_are_finite_and_the_cheapest_row_wins(
        config in configuration(),
        context in context(),
        mut rows in prop::collection::vec(row(), 1..12),
    ) {
        prop_assert_eq!(config.validate(), Ok(()));
        let mut scratch = host::Scratch::default();
        for name in Catalogue::built_in().names() {
            // The host refuses what is not finite, so an answer says that every cost is.
            let pick = host::evaluate(&mut build(name, &config), &context, &mut rows, &mut scratch).unwrap();
            let lowest = scratch.scored().iter().map(|row| row.cost()).fold(f64::INFINITY, f64::min);
            prop_assert_eq!(pick.cost, lowest, "{}", name);
        }
    }

    #[test]
    fn decisions_repeat_for_the_same_seed(
        mut config in configuration(),
        temperature in prop_oneof![Just(0.0), Just(1e-300), Just(1e12), 0.0..2.0],
        requests in prop::collection::vec((context(), prop::collection::vec(row(), 1..8)), 1..12),
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
