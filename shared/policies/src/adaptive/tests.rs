//! The formula term by term, and what its state does over several requests.

use super::*;
use crate::fixture::{costs, decide, request};
use switchtower_policy::host::{self, cache, candidate, load};

/// A row with this many booked prefill tokens and cached blocks.
fn row(worker: u64, active: u64, cached: f64) -> WorkerCandidate {
    candidate(worker, 0).with_load(load(0.0, active, 7.0, 3)).with_cache(cache(cached, 0.0, 0.0))
}

fn policy(parameters: Adaptive) -> WorkerSelectionPolicy {
    parameters.build(&KvRouterConfig::default(), "aggregated", RoutingPartitionRef::new("model", "default"))
}

#[test]
fn the_first_request_is_weighed_with_its_own_prompt() {
    let rows = [row(1, 0, 0.0), row(2, 100, 2.0), row(3, 92, 9.0).with_preferred_taint_multiplier(0.5)];
    // m = 64, p = s = 64: w = (2 × 64 + 0.7 × 64) ÷ 64 = 2.7.
    let costs = costs(Adaptive::default(), &KvRouterConfig::default(), &request(64), &rows);
    let expected = [2.7 * 64.0, 100.0 + 2.7 * 32.0, 0.5 * 92.0];
    assert!(costs.iter().zip(expected).all(|(cost, expected)| (cost - expected).abs() < 1e-9), "{costs:?}");
}

/// The costs of `rows` after `before` were decided.
fn costs_after(parameters: Adaptive, before: &[&[WorkerCandidate]], rows: &[WorkerCandidate]) -> Vec<f64> {
    let mut policy = policy(parameters);
    for rows in before {
        decide(&mut policy, &request(64), rows).unwrap();
    }
    let mut scratch = host::Scratch::default();
    host::evaluate(&mut policy, &request(64), &mut rows.to_vec(), &mut scratch).unwrap();
    scratch.costs().to_vec()
}

#[test]
fn later_requests_are_weighed_with_the_mean_uncached_tokens_of_the_rows_taken() {
    let unbalanced = Adaptive { balance_weight: 0.0, ..Adaptive::default() };
    // Taken: row 2 with 16 uncached tokens, then row 1 with 48. s = 32.
    let before: [&[_]; 2] = [&[row(1, 900, 0.0), row(2, 0, 3.0)], &[row(1, 0, 1.0), row(2, 900, 0.0)]];
    let costs = costs_after(unbalanced, &before, &[row(1, 32, 0.0), row(2, 96, 4.0)]);
    // w = (2 × 64 + 0.7 × 64) ÷ 32 = 5.4.
    let expected = [32.0 + 5.4 * 64.0, 96.0];
    assert!(costs.iter().zip(expected).all(|(cost, expected)| (cost - expected).abs() < 1e-9), "{costs:?}");
}

#[test]
fn a_row_pays_for_what_it_was_given_beyond_the_mean_unless_taints_are_preferred() {
    let parameters = Adaptive { balance_memory: 1e12, ..Adaptive::default() };
    let earlier = [row(1, 0, 0.0), row(2, 900, 0.0)];
    let before: [&[_]; 2] = [&earlier; 2];
    let costs = costs_after(parameters, &before, &[row(1, 0, 0.0), row(2, 0, 0.0)]);
    // Row 1 was given 128 tokens, row 2 none: 64 from the mean, a twentieth of which counts.
    assert!((costs[0] - costs[1] - 6.4).abs() < 1e-6, "{costs:?}");
    let preferred = [row(1, 0, 0.0).with_preferred_taint_multiplier(0.9), row(2, 0, 0.0)];
    let costs = costs_after(parameters, &before, &preferred);
    assert!((costs[0] - 0.9 * costs[1]).abs() < 1e-6, "{costs:?}");
}

#[test]
fn the_busier_the_fleet_the_more_a_cached_block_is_worth() {
    // A row that has half the prompt cached, and one that is idle beside it: how much longer may the queue of the first be?
    let longer = |mean: u64| {
        let costs = costs_after(Adaptive::default(), &[], &[row(1, mean, 2.0), row(2, mean, 0.0)]);
        costs[1] - costs[0]
    };
    assert!(longer(0) < 32.0 && longer(64) > 64.0 && longer(640) > 640.0);
}

#[test]
fn b81_no_prompt_and_no_tokens_divide_by_nothing() {
    let empty: [&[_]; 1] = [&[row(1, 0, 9.0)]];
    assert_eq!(costs_after(Adaptive::default(), &empty, &[row(1, 0, 9.0)]), [0.0]);
    let costs = costs(Adaptive::default(), &KvRouterConfig::default(), &request(0), &[row(1, 5, 0.0)]);
    assert_eq!(costs, [5.0]);
}
