//! The index follows the workers' logs, whatever gets lost on the way.

use crate::fleet::{Fleet, Log, hashes_with, record, request};
use switchtower_cluster::Lease;
use switchtower_policy::KvRouterConfig;
use switchtower_selection::SelectionRequest;

async fn fleet() -> Fleet {
    Fleet::start(KvRouterConfig { policy: "additive".into(), ..KvRouterConfig::default() }).await
}

/// Worker 1 with a log that keeps `ring_events` events, of which the first, five blocks of prompt 1, is in the index.
async fn following(ring_events: usize) -> (Fleet, Log, Lease) {
    let fleet = fleet().await;
    let log = Log::serve(&fleet.runtime, 10, ring_events).await;
    let lease = fleet.join(record(1, 10)).await;
    log.publish(log.store(1, 5)).await;
    fleet.until_cached(1, 5).await;
    (fleet, log, lease)
}

#[tokio::test]
async fn a_stored_prefix_attracts_its_prompt() {
    let fleet = fleet().await;
    let log = Log::serve(&fleet.runtime, 10, 100).await;
    let (_one, _two) = (fleet.join(record(1, 10)).await, fleet.join(record(2, 20)).await);
    log.publish(log.store(7, 20)).await;
    fleet.until_cached(7, 20).await;
    for _ in 0..8 {
        let selection = fleet.handle.select(request(7, 21)).await.unwrap();
        assert_eq!((selection.row.worker.0, selection.cached_tokens), (1, 320));
    }
}

#[tokio::test]
async fn b122_what_one_adapter_has_cached_is_no_other_adapters_and_not_the_bases() {
    let fleet = fleet().await;
    let log = Log::serve(&fleet.runtime, 10, 100).await;
    let _one = fleet.join(record(1, 10)).await;
    log.publish(log.store_blocks(hashes_with("lora-a", 7, 5))).await;
    log.publish(log.store(8, 1)).await;
    fleet.until_cached(8, 1).await;
    for (lora_name, cached) in [(Some("lora-a"), 5), (Some("lora-b"), 0), (Some("lora-a1"), 0), (None, 0)] {
        let asked = SelectionRequest { lora_name: lora_name.map(str::to_owned), ..request(7, 5) };
        let scores = fleet.handle.overlap_scores(asked).await.unwrap();
        assert_eq!(scores[0].1.total(), cached, "{lora_name:?}");
    }
}

#[tokio::test]
async fn what_a_worker_stored_before_the_router_knew_it_is_asked_for() {
    let fleet = fleet().await;
    let log = Log::serve(&fleet.runtime, 10, 100).await;
    log.publish(log.store(7, 5)).await;
    let _lease = fleet.join(record(1, 10)).await;
    fleet.until_cached(7, 5).await;
}

#[tokio::test]
async fn b26_a_gap_is_repaired_by_range() {
    let (fleet, log, _lease) = following(100).await;
    let _lost = log.store(2, 5);
    log.publish(log.store(3, 5)).await;
    fleet.until_cached(2, 5).await;
    fleet.until_cached(3, 5).await;
}

#[tokio::test]
async fn b26_a_gap_that_is_too_old_is_repaired_by_snapshot() {
    let (fleet, log, _lease) = following(2).await;
    for seed in 2..9 {
        let _lost = log.store(seed, 5);
    }
    log.publish(log.store(9, 5)).await;
    for seed in 1..=9 {
        fleet.until_cached(seed, 5).await;
    }
}

#[tokio::test]
async fn a_state_larger_than_a_message_comes_in_chunks() {
    const BLOCKS: u32 = 20_000;
    let (fleet, log, _lease) = following(2).await;
    let seeds = 2..11;
    for seed in seeds.clone() {
        let _lost = log.store(seed, BLOCKS);
    }
    let bytes = seeds.len() * BLOCKS as usize * size_of::<u64>();
    assert!(bytes > fleet.runtime.bus().max_payload());
    log.publish(log.store(11, 5)).await;
    // It waits for the state before it.
    fleet.until_cached(11, 5).await;
    for seed in seeds {
        assert_eq!(fleet.cached(seed, BLOCKS).await, BLOCKS);
    }
    assert_eq!(fleet.cached(1, 5).await, 5);
}

#[tokio::test]
async fn the_loss_of_the_newest_events_shows_in_load_reports() {
    let (fleet, log, _lease) = following(100).await;
    let _lost = log.store(2, 5);
    log.report_load(0).await;
    fleet.until_cached(2, 5).await;
}

#[tokio::test]
async fn b24_a_restarted_worker_starts_with_an_empty_cache_and_b25_late_events_do_not_bring_it_back() {
    let fleet = fleet().await;
    let old = Log::serve(&fleet.runtime, 10, 100).await;
    let lease = fleet.join(record(1, 10)).await;
    old.publish(old.store(1, 5)).await;
    fleet.until_cached(1, 5).await;
    let new = Log::serve(&fleet.runtime, 11, 100).await;
    fleet.put(&record(1, 11), &lease).await;
    let incarnation = record(1, 11).incarnation;
    fleet.until(|loads| loads[0].rows[0].info.incarnation == incarnation).await;
    old.publish(old.store(2, 5)).await;
    new.publish(new.store(3, 5)).await;
    fleet.until_cached(3, 5).await;
    assert_eq!((fleet.cached(1, 5).await, fleet.cached(2, 5).await), (0, 0));
}

#[tokio::test]
async fn b102_garbage_on_the_bus_is_counted_and_harms_nobody() {
    let fleet = fleet().await;
    let log = Log::serve(&fleet.runtime, 10, 100).await;
    let _lease = fleet.join(record(1, 10)).await;
    for subject in [switchtower_selection::wire::KV_EVENTS, switchtower_selection::wire::LOADS] {
        for garbage in [&b""[..], b"{", b"\xff\xff", b"{\"row\":{\"worker\":1,\"rank\":0}}"] {
            fleet.runtime.bus().publish(subject, bytes::Bytes::from_static(garbage)).await.unwrap();
        }
    }
    log.publish(log.store(1, 5)).await;
    fleet.until_cached(1, 5).await;
    let mut registry = prometheus_client::registry::Registry::default();
    fleet.handle.register_metrics(&mut registry);
    let text = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    };
    let malformed = r#"switchtower_kv_events_dropped_total{reason="malformed"} 8"#;
    while !text().contains(malformed) {
        tokio::task::yield_now().await;
    }
}
