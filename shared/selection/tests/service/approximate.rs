//! Workers without KV events: what was sent there is assumed to be cached, and nothing else is.

use crate::fleet::{Fleet, record, request};
use std::time::Duration;
use switchtower_policy::KvRouterConfig;
use switchtower_selection::{AssumedOptions, SelectionOptions, WorkerFailure, records::WorkerRecord};

async fn fleet(assumed: AssumedOptions) -> Fleet {
    let config = KvRouterConfig { policy: "additive".into(), ..KvRouterConfig::default() };
    Fleet::with_options(config, SelectionOptions { assumed, ..SelectionOptions::default() }).await
}

fn silent(worker: u64, incarnation: u64) -> WorkerRecord {
    WorkerRecord { kv_events: false, ..record(worker, incarnation) }
}

#[tokio::test]
async fn a_prompt_comes_back_to_the_worker_that_has_seen_it() {
    let fleet = fleet(AssumedOptions::default()).await;
    let _leases = (fleet.join(silent(1, 10)).await, fleet.join(silent(2, 20)).await);
    let mut first = None;
    for round in 0..8 {
        let held = fleet.handle.select_and_reserve(request(7, 20)).await.unwrap();
        let selection = held.selection();
        let expected = if round == 0 { 0 } else { 319 };
        assert_eq!(selection.cached_tokens, expected, "all but the token that has to be computed");
        assert_eq!(*first.get_or_insert(selection.row), selection.row);
        drop(held);
        fleet.until_empty().await;
    }
    let rows = fleet.handle.index_rows().await;
    let blocks: Vec<_> = rows.iter().map(|row| (row.blocks, row.sequence)).collect();
    assert!(blocks == [(20, None), (0, None)] || blocks == [(0, None), (20, None)], "{blocks:?}");
    assert!(fleet.handle.workers().iter().all(|worker| !worker.kv_events));
}

#[tokio::test]
async fn what_was_sent_is_forgotten_after_its_time() {
    let assumed = AssumedOptions { ttl: Duration::from_millis(50), ..AssumedOptions::default() };
    let fleet = fleet(assumed).await;
    let _lease = fleet.join(silent(1, 10)).await;
    drop(fleet.handle.select_and_reserve(request(7, 20)).await.unwrap());
    fleet.until_cached(7, 20).await;
    fleet.until(|loads| loads[0].index.pairs == 0).await;
    assert_eq!(fleet.cached(7, 20).await, 0);
}

#[tokio::test]
async fn b24_a_restarted_worker_is_assumed_to_have_nothing_and_one_that_left_leaves_nothing() {
    let fleet = fleet(AssumedOptions::default()).await;
    let lease = fleet.join(silent(1, 10)).await;
    let held = fleet.handle.select_and_reserve(request(7, 20)).await.unwrap();
    fleet.until_cached(7, 20).await;
    fleet.put(&silent(1, 11), &lease).await;
    let restarted = record(1, 11).incarnation;
    fleet.until(|loads| loads[0].rows[0].info.incarnation == restarted).await;
    assert_eq!(fleet.cached(7, 20).await, 0);
    drop(held);
    drop(fleet.handle.select_and_reserve(request(8, 20)).await.unwrap());
    fleet.until_cached(8, 20).await;
    drop(lease);
    fleet.until(|loads| loads[0].index.pairs == 0).await;
}

#[tokio::test]
async fn a_retry_is_assumed_where_it_went() {
    let fleet = fleet(AssumedOptions::default()).await;
    let _leases = (fleet.join(silent(1, 10)).await, fleet.join(silent(2, 20)).await);
    let mut held = fleet.handle.select_and_reserve(request(7, 20)).await.unwrap();
    let first = held.selection().row;
    let second = held.retry_elsewhere(WorkerFailure::Connect).await.unwrap().row;
    assert_ne!(first, second);
    fleet.until(|loads| loads[0].index.rows == 2).await;
}

#[tokio::test]
async fn of_two_workers_the_log_of_one_and_the_guess_about_the_other_count_alike() {
    let fleet = fleet(AssumedOptions::default()).await;
    let log = crate::fleet::Log::serve(&fleet.runtime, 10, 100).await;
    let _leases = (fleet.join(record(1, 10)).await, fleet.join(silent(2, 20)).await);
    log.publish(log.store(7, 20)).await;
    fleet.until_cached(7, 20).await;
    let mut pinned = request(8, 20);
    pinned.constraints.allowed_workers = vec![switchtower_ids::WorkerId(2)];
    drop(fleet.handle.select_and_reserve(pinned).await.unwrap());
    fleet.until_empty().await;
    for (seed, worker) in [(7, 1), (8, 2)] {
        let selection = fleet.handle.select(request(seed, 21)).await.unwrap();
        assert_eq!((selection.row.worker.0, selection.cached_tokens), (worker, 320));
    }
}

#[tokio::test]
async fn siblings_follow_one_another_after_the_first_has_ended_where_predictions_are_on() {
    for (predicted_ttl, together) in [(Duration::from_secs(60), true), (Duration::ZERO, false)] {
        let fleet = fleet(AssumedOptions { predicted_ttl, ..AssumedOptions::default() }).await;
        let _leases = (fleet.join(record(1, 10)).await, fleet.join(record(2, 20)).await);
        drop(fleet.handle.select_and_reserve(request(7, 10)).await.unwrap());
        fleet.until_empty().await;
        let sibling = fleet.handle.select(request(7, 12)).await.unwrap();
        assert_eq!(sibling.cached_tokens, if together { 160 } else { 0 });
    }
}
