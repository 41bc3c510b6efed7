//! The policy as the scheduler runs it.

use super::*;
use switchtower_policy::{
    WorkerCandidate, WorkerSelectionContext, WorkerSelectionPolicyError,
    host::{self, candidate},
};

fn policy(settings: SessionAffinity) -> WorkerSelectionPolicy {
    let partition = RoutingPartitionRef::new("model", "default");
    settings.factory().build(&KvRouterConfig::default(), "aggregated", partition)
}

/// A turn of `session`: 64 blocks of 16 tokens.
fn turn(session: &str) -> WorkerSelectionContext<'_> {
    host::ContextBuilder::new(1_024, 16).session(Some(session)).build()
}

fn stranger() -> WorkerSelectionContext<'static> {
    host::ContextBuilder::new(1_024, 16).build()
}

/// A worker that holds `cached` blocks of the prompt and has `requests` requests, past prefill.
fn worker(worker_id: u64, cached: f64, requests: u64) -> WorkerCandidate {
    candidate(worker_id, 0)
        .with_cache(host::cache(cached, 0.0, 0.0))
        .with_load(host::load(64.0, 0, 64.0, requests))
}

fn decide(
    policy: &mut WorkerSelectionPolicy,
    context: WorkerSelectionContext<'_>,
    rows: &[WorkerCandidate],
) -> Result<u64, WorkerSelectionPolicyError> {
    let pick = host::evaluate(policy, &context, &mut rows.to_vec(), &mut host::Scratch::default())?;
    Ok(pick.worker_id)
}

fn costs(rows: &[WorkerCandidate]) -> Vec<f64> {
    let mut scratch = host::Scratch::default();
    let mut policy = policy(SessionAffinity::default());
    host::evaluate(&mut policy, &stranger(), &mut rows.to_vec(), &mut scratch).unwrap();
    scratch.costs().to_vec()
}

#[test]
fn a_session_stays_where_it_began_though_others_become_cheaper() {
    let mut policy = policy(SessionAffinity::default());
    assert_eq!(decide(&mut policy, turn("a"), &[worker(1, 0.0, 0), worker(2, 8.0, 0)]), Ok(2));
    let rows = [worker(1, 64.0, 0), worker(2, 0.0, 4)];
    assert_eq!(decide(&mut policy, turn("a"), &rows), Ok(2));
    assert_eq!(decide(&mut policy, turn("b"), &rows), Ok(1));
    assert_eq!(decide(&mut policy, stranger(), &rows), Ok(1));
}

#[test]
fn a_session_moves_for_good_when_its_row_is_much_busier_than_the_least_busy() {
    let mut policy = policy(SessionAffinity::default());
    assert_eq!(decide(&mut policy, turn("a"), &[worker(1, 0.0, 0), worker(2, 8.0, 0)]), Ok(2));
    // The guard at 40 requests on the least busy row: 4 + 1.25 × 40 = 54.
    assert_eq!(decide(&mut policy, turn("a"), &[worker(1, 64.0, 40), worker(2, 8.0, 54)]), Ok(2));
    assert_eq!(decide(&mut policy, turn("a"), &[worker(1, 64.0, 40), worker(2, 8.0, 55)]), Ok(1));
    assert_eq!(decide(&mut policy, turn("a"), &[worker(1, 0.0, 0), worker(2, 64.0, 0)]), Ok(1));
}

#[test]
fn a_session_whose_worker_is_gone_settles_on_another() {
    let mut policy = policy(SessionAffinity::default());
    assert_eq!(decide(&mut policy, turn("a"), &[worker(2, 0.0, 0)]), Ok(2));
    assert_eq!(decide(&mut policy, turn("a"), &[worker(1, 0.0, 0), worker(3, 8.0, 0)]), Ok(3));
    assert_eq!(decide(&mut policy, turn("a"), &[worker(2, 64.0, 0), worker(3, 0.0, 0)]), Ok(3));
}

#[test]
fn ranks_of_a_worker_are_different_homes() {
    let mut policy = policy(SessionAffinity::default());
    let rank = |rank, cached| candidate(1, rank).with_cache(host::cache(cached, 0.0, 0.0));
    let mut decide = |rows: [WorkerCandidate; 2]| {
        let pick =
            host::evaluate(&mut policy, &turn("a"), &mut Vec::from(rows), &mut host::Scratch::default());
        pick.unwrap().dp_rank
    };
    assert_eq!(decide([rank(0, 0.0), rank(1, 8.0)]), 1);
    assert_eq!(decide([rank(0, 64.0), rank(1, 0.0)]), 1);
}

#[test]
fn a_forgotten_session_finds_its_warm_row_by_the_cost() {
    let mut policy = policy(SessionAffinity { sessions_max: 1, ..SessionAffinity::default() });
    assert_eq!(decide(&mut policy, turn("a"), &[worker(1, 0.0, 0), worker(2, 8.0, 0)]), Ok(2));
    assert_eq!(decide(&mut policy, turn("b"), &[worker(1, 8.0, 0), worker(2, 0.0, 0)]), Ok(1));
    assert_eq!(decide(&mut policy, turn("a"), &[worker(1, 0.0, 0), worker(2, 60.0, 0)]), Ok(2));
}

#[test]
fn a_cost_is_backlog_plus_weighted_uncached_tokens() {
    let backlog = |row: WorkerCandidate, tokens| row.with_load(host::load(64.0, tokens, 64.0, 0));
    // On an idle fleet uncached tokens weigh 2; a prompt that is cached whole has one left to compute.
    assert_eq!(costs(&[worker(1, 0.0, 9), worker(2, 32.0, 0), worker(3, 99.0, 0)]), [2_048.0, 1_024.0, 2.0]);
    // A mean backlog of 20,000 tokens: they weigh 2 + 2².
    let busy = [backlog(worker(1, 0.0, 0), 10_000), backlog(worker(2, 32.0, 0), 30_000)];
    assert_eq!(costs(&busy), [10_000.0 + 6.0 * 1_024.0, 30_000.0 + 6.0 * 512.0]);
    assert_eq!(costs(&[worker(1, 0.0, 0).with_preferred_taint_multiplier(0.5)]), [1_024.0]);
}

#[test]
fn b81_extreme_loads_keep_costs_finite_and_sessions_served() {
    let full = candidate(1, 0).with_load(host::load(f64::MAX, u64::MAX, f64::MAX, u64::MAX));
    let mut policy = policy(SessionAffinity::default());
    let huge = host::ContextBuilder::new(u64::MAX, u32::MAX).session(Some("a")).build();
    assert_eq!(decide(&mut policy, huge, &[full]), Ok(1));
    assert_eq!(decide(&mut policy, huge, &[full, worker(2, 0.0, 0)]), Ok(2));
}

#[test]
fn b82_new_sessions_spread_over_equal_rows() {
    let rows: Vec<_> = (0..8).map(|id| worker(id, 0.0, 0)).collect();
    let mut policy = policy(SessionAffinity::default());
    let mut counts = [0_u32; 8];
    for n in 0..800 {
        counts[decide(&mut policy, turn(&n.to_string()), &rows).unwrap() as usize] += 1;
    }
    assert!(counts.iter().all(|count| (75..=125).contains(count)), "{counts:?}");
}

#[test]
fn the_policy_has_a_name_in_the_catalogue() {
    let catalogue =
        switchtower_policies::Catalogue::built_in().with("session-affinity", session_affinity_policy);
    assert!(catalogue.unwrap().get("session-affinity").is_ok());
}
