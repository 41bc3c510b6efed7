//! When a replica may be given requests, and how the registry follows workers that change.

use crate::fleet::{Fleet, Log, record, request};
use switchtower_cluster::memory::MemoryCluster;
use switchtower_policy::KvRouterConfig;
use switchtower_selection::{SelectionOptions, records::WorkerRecord};

async fn replica(runtime: switchtower_cluster::DistributedRuntime) -> Fleet {
    Fleet::join_cluster(runtime, KvRouterConfig::default(), SelectionOptions::default()).await
}

#[tokio::test]
async fn b13_a_replica_that_starts_late_is_ready_with_the_whole_index() {
    let cluster = MemoryCluster::new("test");
    let early = replica(cluster.runtime()).await;
    let log = Log::serve(&early.runtime, 10, 3).await;
    let _leases = (early.join(record(1, 10)).await, early.join(record(2, 20)).await);
    for seed in 1..=30 {
        log.publish(log.store(seed, 5)).await;
    }
    early.handle.ready().await;
    for round in 0..20 {
        let late = replica(cluster.runtime()).await;
        late.handle.ready().await;
        for seed in 1..=30 {
            assert_eq!(late.cached(seed, 5).await, 5, "round {round}, prompt {seed}");
        }
        assert_eq!(late.handle.workers().len(), 2);
    }
}

#[tokio::test]
async fn a_worker_that_never_answers_for_its_log_does_not_keep_a_replica_from_being_ready() {
    let cluster = MemoryCluster::new("test");
    let first = replica(cluster.runtime()).await;
    let _lease = first.join(record(1, 10)).await;
    let late = replica(cluster.runtime()).await;
    late.handle.synced().await;
    late.handle.ready().await;
    assert!(late.handle.is_ready() && late.handle.select(request(1, 1)).await.is_ok());
}

#[tokio::test]
async fn without_a_cluster_it_starts_is_not_ready_and_becomes_ready_when_there_is_one() {
    let cluster = MemoryCluster::new("test");
    let connection = cluster.connect();
    connection.set_reachable(false);
    let fleet = replica(connection.runtime()).await;
    assert!(!fleet.handle.is_ready() && !fleet.handle.is_synced());
    assert_eq!(fleet.handle.index_rows().await, []);
    assert!(fleet.handle.select(request(1, 1)).await.is_err());
    fleet.handle.refresh_metrics().await;
    connection.set_reachable(true);
    fleet.handle.ready().await;
    let _lease = fleet.join(record(1, 10)).await;
    assert!(fleet.handle.select(request(1, 1)).await.is_ok());
}

#[tokio::test]
async fn without_a_cluster_it_can_be_shut_down() {
    let cluster = MemoryCluster::new("test");
    let connection = cluster.connect();
    connection.set_reachable(false);
    let Fleet { service, .. } = replica(connection.runtime()).await;
    service.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b12_a_model_that_is_listed_is_served() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    for round in 0..200 {
        let model = format!("model-{round}");
        let of_this = WorkerRecord { model: model.clone(), ..record(1 + round, 1 + round) };
        let lease = fleet.runtime.discovery().grant(std::time::Duration::from_secs(10)).await.unwrap();
        let listed = fleet.handle.wait_for_models(|models| {
            models.iter().any(|status| *status.model == *model && status.open_rows > 0)
        });
        let ((), listed) = tokio::join!(fleet.put(&of_this, &lease), listed);
        assert!(listed);
        let mine = switchtower_selection::SelectionRequest::new(&model, vec![1; 64]);
        assert!(fleet.handle.select_and_reserve(mine).await.is_ok(), "round {round}");
    }
}

#[tokio::test]
async fn b29_rows_follow_a_worker_that_changes_its_ranks_with_and_without_a_restart() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let log = Log::serve(&fleet.runtime, 10, 100).await;
    let lease = fleet.join(WorkerRecord { ranks: 4, ..record(1, 10) }).await;
    log.publish(log.store(7, 5)).await;
    fleet.until_cached(7, 5).await;
    for (incarnation, ranks) in [(10, 2), (10, 3), (11, 1), (11, 4)] {
        fleet.put(&WorkerRecord { ranks, ..record(1, incarnation) }, &lease).await;
        fleet.until(|loads| loads[0].rows.len() == ranks as usize).await;
        assert_eq!(fleet.handle.index_rows().await.len(), ranks as usize, "no column is left behind");
        assert_eq!(fleet.handle.workers()[0].ranks, ranks);
        let life = record(1, incarnation).incarnation;
        fleet.until(|loads| loads[0].rows.iter().all(|row| row.info.incarnation == life)).await;
        assert_eq!(fleet.cached(7, 5).await, if incarnation == 10 { 5 } else { 0 });
    }
}

#[tokio::test]
async fn b29_a_worker_without_ranks_is_refused_and_harms_nobody() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let lease = fleet.join(record(1, 10)).await;
    fleet.put(&WorkerRecord { ranks: 0, ..record(2, 20) }, &lease).await;
    while fleet.handle.refused_records().is_empty() {
        tokio::task::yield_now().await;
    }
    let refused = fleet.handle.refused_records();
    assert_eq!((refused[0].key.as_str(), refused[0].kind), ("workers/2", "field"));
    assert!(refused[0].reason.contains("ranks"), "{}", refused[0].reason);
    assert_eq!(fleet.handle.select(request(1, 1)).await.unwrap().row.worker.0, 1);
}

#[tokio::test]
async fn a_worker_that_changes_its_model_moves_with_its_log() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let log = Log::serve(&fleet.runtime, 10, 100).await;
    let lease = fleet.join(record(1, 10)).await;
    let held = fleet.handle.select_and_reserve(request(7, 5)).await.unwrap();
    log.publish(log.store(7, 5)).await;
    fleet.until_cached(7, 5).await;
    fleet.put(&WorkerRecord { model: "other".into(), ..record(1, 10) }, &lease).await;
    fleet
        .until(|loads| loads.iter().any(|load| &*load.partition.model == "other" && load.index.pairs == 5))
        .await;
    fleet
        .until(|loads| loads.iter().all(|load| &*load.partition.model == "other" || load.index.pairs == 0))
        .await;
    assert!(fleet.handle.select(request(7, 5)).await.is_err(), "its old model has no worker");
    drop(held);
    fleet.until_empty().await;
}

#[tokio::test]
async fn b25_events_that_come_late_leave_nothing_of_a_worker_that_left() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    for trial in 0..20 {
        let log = Log::serve(&fleet.runtime, 10 + trial, 1_000).await;
        let lease = fleet.join(record(1, 10 + trial)).await;
        for seed in 0..50 {
            log.publish(log.store(seed, 3)).await;
        }
        drop(lease);
        for seed in 50..100 {
            log.publish(log.store(seed, 3)).await;
        }
        fleet.until(|loads| loads[0].rows.is_empty() && loads[0].index.pairs == 0).await;
        fleet.until_gone().await;
    }
}
