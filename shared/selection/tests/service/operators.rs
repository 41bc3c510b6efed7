//! What operators see and say, through any replica.

use crate::fleet::{Fleet, Log, record, request};
use switchtower_cluster::memory::MemoryCluster;
use switchtower_ids::WorkerId;
use switchtower_policy::KvRouterConfig;
use switchtower_selection::{
    AdminError, DrainOutcome, Reported, SelectionOptions,
    records::{RefusedClaim, ReplicaRecord, WorkerRecord},
    registration::announce,
};

/// So many replicas of one cluster.
async fn replicas(cluster: &MemoryCluster, count: usize) -> Vec<Fleet> {
    let mut replicas = Vec::new();
    for _ in 0..count {
        let config = KvRouterConfig::default();
        let replica = Fleet::join_cluster(cluster.runtime(), config, SelectionOptions::default()).await;
        replica.handle.ready().await;
        replicas.push(replica);
    }
    replicas
}

async fn until_drained(fleet: &Fleet, drained: bool) {
    while fleet.handle.workers().first().is_none_or(|worker| worker.drained != drained) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_worker_that_is_drained_through_one_replica_gets_nothing_from_any_until_it_is_resumed() {
    let cluster = MemoryCluster::new("test");
    let replicas = replicas(&cluster, 2).await;
    let (here, there) = (&replicas[0], &replicas[1]);
    let leases = (here.join(record(1, 10)).await, here.join(record(2, 20)).await);
    there.until(|loads| loads.iter().any(|load| load.rows.len() == 2)).await;
    assert_eq!(here.handle.drain(WorkerId(1), "a new kernel").await, Ok(DrainOutcome::Drained));
    assert!(here.handle.workers()[0].drained, "whoever says it sees it");
    until_drained(there, true).await;
    assert_eq!(there.handle.workers()[0].drain_reason.as_deref(), Some("a new kernel"));
    assert!(!there.handle.workers()[0].draining, "it did not say so itself");
    for seed in 0..8 {
        assert_eq!(there.handle.select(request(seed, 1)).await.unwrap().row.worker.0, 2);
    }
    assert_eq!(there.handle.drain(WorkerId(1), "still").await, Ok(DrainOutcome::AlreadyDrained));

    // It holds for the worker's next life, and for a replica that starts now.
    drop(leases.0);
    there.until(|loads| loads[0].rows.len() == 1).await;
    let _again = there.join(record(1, 11)).await;
    until_drained(there, true).await;
    let late = self::replicas(&cluster, 1).await;
    assert!(late[0].handle.workers()[0].drained);

    assert_eq!(late[0].handle.resume(WorkerId(1)).await, Ok(DrainOutcome::Resumed));
    assert_eq!(late[0].handle.resume(WorkerId(1)).await, Ok(DrainOutcome::NotDrained));
    until_drained(here, false).await;
    assert!(here.handle.models()[0].open_rows == 2);
}

#[tokio::test]
async fn what_cannot_be_drained_is_refused_by_name() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let unknown = Err(AdminError::UnknownWorker(WorkerId(9)));
    assert_eq!(fleet.handle.drain(WorkerId(9), "").await, unknown);
    assert_eq!(fleet.handle.resume(WorkerId(9)).await, unknown);
    let _lease = fleet.join(record(1, 10)).await;
    let refused = fleet.handle.drain(WorkerId(1), &"x".repeat(10_000)).await;
    assert!(matches!(refused, Err(AdminError::Setting(_))), "{refused:?}");
    assert!(!fleet.handle.workers()[0].drained);
}

#[tokio::test]
async fn drains_without_a_store_fail_and_change_nothing() {
    let cluster = MemoryCluster::new("test");
    let connection = cluster.connect();
    let config = KvRouterConfig::default();
    let fleet = Fleet::join_cluster(connection.runtime(), config, SelectionOptions::default()).await;
    fleet.handle.synced().await;
    let _lease = fleet.join(record(1, 10)).await;
    connection.set_reachable(false);
    let refused = fleet.handle.drain(WorkerId(1), "").await;
    assert!(matches!(refused, Err(AdminError::Discovery(_))), "{refused:?}");
    let health = fleet.handle.cluster_health();
    assert!(!health.discovery.connected && !health.bus.connected);
    assert!(fleet.handle.is_ready() && fleet.handle.select(request(1, 1)).await.is_ok(), "it routes on");
    connection.set_reachable(true);
    assert_eq!(fleet.handle.drain(WorkerId(1), "").await, Ok(DrainOutcome::Drained));
}

#[tokio::test]
async fn replicas_show_equal_indexes_and_other_ones_where_something_differs() {
    let cluster = MemoryCluster::new("test");
    let replicas = replicas(&cluster, 2).await;
    let log = Log::serve(&replicas[0].runtime, 10, 1_000).await;
    let _lease = replicas[0].join(WorkerRecord { ranks: 2, ..record(1, 10) }).await;
    for seed in 1..=40 {
        log.publish(log.store(seed, 5)).await;
    }
    for replica in &replicas {
        for seed in 1..=40 {
            replica.until_cached(seed, 5).await;
        }
    }
    let (one, two) = (replicas[0].handle.index_rows().await, replicas[1].handle.index_rows().await);
    assert_eq!(one, two);
    assert_eq!((one.len(), one[0].blocks, one[0].sequence), (2, 200, Some(log.last_sequence())));
    log.publish(log.store(41, 1)).await;
    replicas[0].until_cached(41, 1).await;
    let three = replicas[0].handle.index_rows().await;
    assert_eq!(three[0].blocks, 201);
    assert_ne!(three[0].digest, one[0].digest);
    assert_eq!(serde_json::to_value(&three[0]).unwrap()["digest"].as_str().unwrap().len(), 16);
}

#[tokio::test]
async fn b57_a_row_without_a_report_is_unknown_and_one_with_it_shows_its_age() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let log = Log::serve(&fleet.runtime, 10, 100).await;
    let _leases = (fleet.join(record(1, 10)).await, fleet.join(record(2, 20)).await);
    assert_eq!(fleet.handle.loads().await[0].reports, [Reported::Unknown; 2]);
    assert_eq!(fleet.handle.workers()[0].report_age_ms, None);
    log.report_load(70).await;
    fleet
        .until(|loads| matches!(loads[0].reports[0], Reported::Known(report) if report.blocks_used == 70))
        .await;
    let loads = fleet.handle.loads().await;
    assert_eq!(loads[0].reports[1], Reported::Unknown);
    assert!(fleet.handle.workers()[0].report_age_ms.is_some());
    let shown: Vec<_> = loads[0].load_rows().map(|row| serde_json::to_value(row).unwrap()).collect();
    assert_eq!((&shown[0]["report"]["blocks_used"], &shown[1]["report"]), (&70.into(), &"unknown".into()));
    assert_eq!(
        (&shown[0]["model"], &shown[0]["worker_id"], &shown[0]["rank"]),
        (&"m".into(), &1.into(), &0.into())
    );
    // Without KV events a report is the only sign of life.
    let _silent = fleet.join(WorkerRecord { kv_events: false, ..record(1, 10) }).await;
    fleet.until(|loads| loads[0].rows.len() == 2).await;
}

#[tokio::test]
async fn b118_whoever_waits_for_a_taken_id_is_shown_and_counted() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let lease = fleet.join(record(1, 10)).await;
    let claim =
        RefusedClaim::new(WorkerId(1), record(1, 11).incarnation, "http://127.0.0.1:2", "it is taken");
    let json = claim.to_json().unwrap().into();
    fleet.runtime.discovery().put(&claim.key(), json, Some(&lease)).await.unwrap();
    while fleet.handle.refused_records().is_empty() {
        tokio::task::yield_now().await;
    }
    let refused = fleet.handle.refused_records();
    assert_eq!((refused[0].key.as_str(), refused[0].kind), (claim.key().as_str(), "id_taken"));
    let mut registry = prometheus_client::registry::Registry::default();
    fleet.handle.register_metrics(&mut registry);
    fleet.handle.refresh_metrics().await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        r#"switchtower_records_refused{reason="id_taken"} 1"#,
        r#"switchtower_records_refused{reason="parse"} 0"#,
        r#"switchtower_port_connected{port="discovery"} 1"#,
        r#"switchtower_port_connected{port="bus"} 1"#,
        r#"switchtower_port_stale_ms{port="bus"} 0"#,
        r#"switchtower_rows_unreported{model="m",routing_group="default",stage="aggregated"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[tokio::test]
async fn routers_list_one_another() {
    let cluster = MemoryCluster::new("test");
    let replicas = replicas(&cluster, 2).await;
    let mut announced = Vec::new();
    for replica in &replicas {
        let id = switchtower_ids::ReplicaId(replica.runtime.replica());
        let record = ReplicaRecord::new(id, 1, "0.0.0");
        let announcement = announce(&replica.runtime, &record, replica.runtime.tasks()).unwrap();
        announcement.announced().await;
        announced.push((record, announcement));
    }
    replicas[0].runtime.discovery().put("replicas/x", bytes::Bytes::from_static(b"{"), None).await.unwrap();
    let listed = replicas[1].handle.replicas().await.unwrap();
    assert_eq!(listed, [announced[0].0.clone(), announced[1].0.clone()], "ids rise with time");
    announced.remove(0).1.end().await;
    assert_eq!(replicas[0].handle.replicas().await.unwrap().len(), 1);
}
