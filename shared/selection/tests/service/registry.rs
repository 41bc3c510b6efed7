//! The registry follows discovery, and what routes is what is shown (design invariant 7).

use crate::fleet::{Fleet, record, request};
use switchtower_policy::KvRouterConfig;
use switchtower_scheduling::Rejection;
use switchtower_selection::records::WorkerRecord;

#[tokio::test]
async fn workers_come_and_go_with_their_leases() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let one = fleet.join(record(1, 10)).await;
    let two = fleet.join(WorkerRecord { ranks: 2, ..record(2, 20) }).await;
    let models = fleet.handle.models();
    assert_eq!((models[0].workers, models[0].rows), (2, 3));
    drop(one);
    assert!(fleet.handle.wait_for_models(|models| models[0].workers == 1).await);
    drop(two);
    assert!(fleet.handle.wait_for_models(|models| models[0].rows == 0).await);
    let rejection = fleet.handle.select(request(1, 1)).await.unwrap_err();
    assert!(matches!(rejection, Rejection::NothingEligible(_)));
}

#[tokio::test]
async fn b84_a_fleet_that_died_and_came_back_is_served_again() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    for cycle in 0..20 {
        let lease = fleet.join(record(1, 10 + cycle)).await;
        assert!(fleet.handle.select_and_reserve(request(1, 1)).await.is_ok());
        drop(lease);
        assert!(fleet.handle.wait_for_models(|models| models[0].rows == 0).await);
        assert!(fleet.handle.select_and_reserve(request(1, 1)).await.is_err());
    }
    fleet.until_empty().await;
}

#[tokio::test]
async fn a_draining_worker_gets_nothing_new() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let (one, _two) = (fleet.join(record(1, 10)).await, fleet.join(record(2, 20)).await);
    fleet.put(&WorkerRecord { draining: true, ..record(1, 10) }, &one).await;
    assert!(fleet.handle.wait_for_models(|models| models[0].open_rows == 1).await);
    for seed in 0..8 {
        assert_eq!(fleet.handle.select(request(seed, 1)).await.unwrap().row.worker.0, 2);
    }
}

#[tokio::test]
async fn a_refused_record_is_shown_with_its_reason_and_harms_nobody() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let one = fleet.join(record(1, 10)).await;
    fleet.put(&WorkerRecord { block_size: 32, ..record(2, 20) }, &one).await;
    fleet.runtime.discovery().put("workers/3", bytes::Bytes::from_static(b"{"), None).await.unwrap();
    while fleet.handle.refused_records().len() != 2 {
        tokio::task::yield_now().await;
    }
    let refused = fleet.handle.refused_records();
    assert!(refused.iter().any(|record| record.key == "workers/2" && record.reason.contains("block_size")));
    assert_eq!(fleet.handle.select(request(1, 1)).await.unwrap().row.worker.0, 1);
}

#[tokio::test]
async fn b44_bookings_of_a_workers_former_life_do_not_count_in_its_next_one() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let lease = fleet.join(record(1, 10)).await;
    let old = fleet.handle.select_and_reserve(request(1, 4)).await.unwrap();
    fleet.put(&record(1, 11), &lease).await;
    let restarted = record(1, 11).incarnation;
    fleet.until(|loads| loads[0].rows[0].info.incarnation == restarted).await;
    fleet.until(|loads| loads[0].rows[0].load.active_requests == 0).await;
    let new = fleet.handle.select_and_reserve(request(2, 4)).await.unwrap();
    drop(old);
    fleet.until(|loads| loads[0].reservations == 1).await;
    fleet.until(|loads| loads[0].rows[0].load.active_requests == 1).await;
    drop(new);
    fleet.until_empty().await;
}
