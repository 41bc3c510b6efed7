//! The corridor end to end, in one process: real HTTP clients, the front end, the selection service and simulated
//! workers. What goes wrong on the way must cost its own request and leave nothing behind.

#[path = "corridor/client.rs"]
mod client;
#[path = "corridor/policy.rs"]
mod policy;
#[path = "corridor/tower.rs"]
mod tower;

use client::{Ending, Visit};
use policy::unreliable;
use std::{collections::BTreeMap, sync::Arc};
use switchtower_policies::Generator;
use switchtower_worker::Faults;
use tower::Tower;

const CALLERS: u64 = 32;
const PROMPTS: u64 = 50;

/// What one caller does for a while: endings by how often they came.
async fn call(tower: Arc<Tower>, caller: u64, requests: u64) -> BTreeMap<Ending, u64> {
    let mut random = Generator::new(caller + 1);
    let mut endings = BTreeMap::new();
    for _ in 0..requests {
        let visit = Visit::draw(&mut random, PROMPTS);
        *endings.entry(visit.make(tower.address()).await).or_default() += 1;
    }
    endings
}

/// All callers at once; returns how their requests ended.
async fn traffic(tower: &Arc<Tower>, requests: u64) -> BTreeMap<Ending, u64> {
    let calls = (0..CALLERS).map(|caller| call(Arc::clone(tower), caller, requests / CALLERS));
    let mut all = BTreeMap::new();
    for (ending, count) in futures::future::join_all(calls).await.into_iter().flatten() {
        *all.entry(ending).or_default() += count;
    }
    all
}

/// Resident memory of this process, in MiB.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1_024
}

/// Design invariants 1 and 2 under fire: 10,000 requests with random disconnects, worker errors before and after the
/// first byte, malformed bodies, and a policy that panics, errs and returns nonsense.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invariants_1_and_2_after_ten_thousand_requests_the_book_is_empty_and_memory_flat() {
    let faults = Faults {
        fail_before_first_byte: 0.05,
        cut_probability: 0.05,
        cut_after_tokens: 3,
        slow_probability: 0.02,
        slow_ms: 5,
    };
    let tower = Arc::new(Tower::start(4, faults, unreliable).await);
    let warm = traffic(&tower, 2_000).await;
    tower.until_at_rest().await;
    let before_mib = resident_mib();
    let endings = traffic(&tower, 8_000).await;
    tower.until_at_rest().await;
    let growth_mib = resident_mib().saturating_sub(before_mib);

    for ending in [Ending::Answered, Ending::Left, Ending::Refused, Ending::Failed] {
        assert!(endings.contains_key(&ending), "{ending:?} never happened: {endings:?}");
    }
    assert!(!endings.contains_key(&Ending::Broken), "a stream ended without a word: {endings:?}");
    assert_eq!(endings.values().chain(warm.values()).sum::<u64>(), (10_000 / CALLERS) * CALLERS);
    assert!(growth_mib < 48, "memory grew by {growth_mib} MiB over 8,000 requests of known prompts");
    let failures = tower.policy_failures().await;
    for kind in ["panic", "error", "non_finite_contribution"] {
        assert!(failures.contains_key(kind), "the policy never failed by {kind}: {failures:?}");
    }
    assert_eq!(Visit::plain("still there?").make(tower.address()).await, Ending::Answered);
    println!("endings {endings:?}, policy failures {failures:?}, memory + {growth_mib} MiB");
    Arc::into_inner(tower).unwrap().stop().await;
}

/// A second, identical long prompt goes to the worker that has it, and the metrics show the hit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_long_prompt_hits_the_cache_of_the_worker_that_served_it() {
    let tower = Tower::start(4, Faults::default(), switchtower_policies::additive).await;
    let visit = Visit::plain(&"a long story about trains and signals ".repeat(200));
    let first = visit.answer(tower.address()).await;
    tower.until_cached(&first.worker).await;
    for _ in 0..4 {
        assert_eq!(visit.answer(tower.address()).await.worker, first.worker);
    }
    let metrics = client::get(tower.address(), "/metrics").await;
    let cached = metrics.lines().find_map(|line| line.strip_prefix("switchtower_cached_tokens_total"));
    let cached: u64 = cached.and_then(|line| line.rsplit(' ').next()).unwrap().parse().unwrap();
    assert!(cached > 4 * 1_000, "{cached} tokens were taken for cached");
    tower.stop().await;
}
