//! The registry follows discovery, and what routes is what is shown (design invariant 7).

use crate::fleet::{Fleet, Log, MODEL, record, request};
use parking_lot::{Condvar, Mutex};
use std::{sync::Arc, time::Duration};
use switchtower_cluster::DistributedRuntime;
use switchtower_ids::Rank;
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerScorer, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};
use switchtower_scheduling::Rejection;
use switchtower_selection::{
    SelectionOptions, SelectionRequest, SelectionServiceBuilder,
    records::{RANKS_MAX, WorkerRecord},
    wire::{self, LoadReport, RankLoad},
};

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

#[tokio::test]
async fn whoever_waits_in_a_partition_that_changes_its_block_size_is_answered() {
    let fleet =
        Fleet::start(KvRouterConfig { queue_threshold: Some(1.0), ..KvRouterConfig::default() }).await;
    let lease = fleet.join(record(1, 10)).await;
    let busy = fleet.handle.select_and_reserve(request(1, 100)).await.unwrap();
    let (waiter, ()) = tokio::join!(fleet.handle.select_and_reserve(request(2, 1)), async {
        fleet.until(|loads| loads[0].waiting == 1).await;
        fleet.put(&WorkerRecord { block_size: 32, ..record(1, 11) }, &lease).await;
    });
    assert!(matches!(waiter.unwrap_err(), Rejection::NothingEligible(_)));
    assert!(fleet.handle.wait_for_models(|models| models[0].block_size == 32 && models[0].rows == 1).await);
    let next = fleet.handle.select_and_reserve(request(3, 4)).await.unwrap();
    drop((busy, next));
    fleet.until_empty().await;
}

#[tokio::test]
async fn b43_models_that_workers_make_up_are_forgotten_but_not_those_with_reservations() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let named = |number: u64| format!("made-up-{number}");
    let mut kept = None;
    for number in 0..200 {
        let lease = fleet.join(WorkerRecord { model: named(number), ..record(1, 10 + number) }).await;
        if number == 0 {
            let mine = SelectionRequest::new(&named(0), vec![1; 64]);
            kept = Some(fleet.handle.select_and_reserve(mine).await.unwrap());
        }
        drop(lease);
        let gone = |models: &[switchtower_selection::ModelStatus]| models.iter().all(|model| model.rows == 0);
        assert!(fleet.handle.wait_for_models(gone).await);
    }
    let models = fleet.handle.models();
    assert!(models.len() <= 66, "{} models are remembered", models.len());
    assert!(models.iter().any(|model| *model.model == *named(0)) && kept.is_some());
    assert!(models.iter().any(|model| *model.model == *named(199)), "the last that left are remembered");
}

#[tokio::test]
async fn a_closed_service_rejects_what_comes_for_workers_that_join_later() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    fleet.service.close().await;
    let _lease = fleet.join(record(1, 10)).await;
    assert!(matches!(fleet.handle.select_and_reserve(request(1, 1)).await, Err(Rejection::ShuttingDown)));
    assert!(matches!(fleet.handle.select(request(1, 1)).await, Err(Rejection::ShuttingDown)));
}

fn rank_load(rank: u32, blocks_used: u64) -> RankLoad {
    RankLoad {
        rank: Rank(rank),
        running: 0,
        waiting: 0,
        blocks_used,
        blocks_total: 1_000,
        prefill_tokens: 0,
        kv_sequence: 0,
    }
}

impl Fleet {
    async fn report(&self, measured_at_ms: u64, ranks: Vec<RankLoad>) {
        let WorkerRecord { worker_id, incarnation, .. } = record(1, 10);
        let report = LoadReport { worker_id, incarnation, measured_at_ms, ranks };
        self.runtime.bus().publish(wire::LOADS, wire::encode(&report)).await.unwrap();
    }

    async fn until_reported(&self, blocks_used: u64) {
        let seen = |report: Option<switchtower_scheduling::RowReport>| {
            report.is_some_and(|report| report.blocks_used == blocks_used)
        };
        self.until(|loads| seen(loads[0].rows[0].report)).await;
    }
}

#[tokio::test]
async fn b57_a_report_that_comes_late_does_not_take_the_place_of_a_newer_one() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let _lease = fleet.join(WorkerRecord { ranks: 2, ..record(1, 10) }).await;
    fleet.report(1_000, vec![rank_load(0, 10)]).await;
    fleet.until_reported(10).await;
    fleet.report(999, vec![rank_load(0, 990)]).await;
    fleet.report(1_001, vec![rank_load(1, 11)]).await;
    let second =
        |load: &switchtower_selection::PartitionLoads| load.rows[1].report.map(|report| report.blocks_used);
    fleet.until(|loads| second(&loads[0]) == Some(11)).await;
    fleet.until_reported(10).await;
}

#[tokio::test]
async fn b149_a_report_on_ranks_that_were_never_announced_goes_no_further() {
    let options = SelectionOptions { commands_max: 64, ..SelectionOptions::default() };
    let fleet = Fleet::with_options(KvRouterConfig::default(), options).await;
    let _lease = fleet.join(record(1, 10)).await;
    let ranks = |count, blocks_used| (0..count).map(|rank| rank_load(rank, blocks_used)).collect();
    fleet.report(1, ranks(RANKS_MAX + 1, 9)).await;
    fleet.report(2, ranks(RANKS_MAX, 7)).await;
    fleet.until_reported(7).await;
    assert_eq!(fleet.handle.loads().await[0].rows.len(), 1);
}

/// Opens once, for all.
type Gate = Arc<(Mutex<bool>, Condvar)>;

fn wait_for(gate: &Gate) {
    let (open, opened) = &**gate;
    let mut open = open.lock();
    while !*open {
        opened.wait(&mut open);
    }
}

/// Blocks in its first request until the gate opens.
struct Blocking(Gate);

impl WorkerScorer for Blocking {
    fn score(
        &mut self,
        _: &WorkerSelectionContext<'_>,
        _: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        wait_for(&self.0);
        Ok(0.0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b74_a_policy_that_blocks_holds_up_its_own_partition_only() {
    let gate: Gate = Arc::default();
    let policy_gate = Arc::clone(&gate);
    let factory = move |config: &KvRouterConfig,
                        label: &'static str,
                        partition: RoutingPartitionRef<'_>|
          -> WorkerSelectionPolicy {
        if partition.model_name() == MODEL {
            switchtower_policies::cheapest_by(Blocking(Arc::clone(&policy_gate)), config, label, partition)
        } else {
            if partition.model_name() == "slow to build" {
                wait_for(&policy_gate);
            }
            switchtower_policies::active_requests(config, label, partition)
        }
    };
    let runtime = DistributedRuntime::in_memory("test");
    let builder = SelectionServiceBuilder::new(KvRouterConfig::default())
        .worker_selection_policy_factory(factory)
        .options(SelectionOptions { commands_max: 1, ..SelectionOptions::default() })
        .distributed_runtime(runtime.clone());
    let service = builder.build().await.unwrap();
    let fleet = Fleet { runtime, handle: service.handle(), service };
    let lease = fleet.join(record(1, 10)).await;
    let tasks = fleet.runtime.tasks().child("stuck");
    for seed in 0..4 {
        let handle = fleet.handle.clone();
        tasks.spawn_named("stuck", async move { drop(handle.select_and_reserve(request(seed, 1)).await) });
    }
    let served = async {
        // Its own partition's rows change too while it is stuck.
        for worker in 2..6 {
            fleet.put(&record(worker, worker), &lease).await;
        }
        fleet.put(&WorkerRecord { model: "slow to build".into(), ..record(8, 8) }, &lease).await;
        fleet.put(&WorkerRecord { model: "other".into(), ..record(9, 9) }, &lease).await;
        assert!(
            fleet.handle.wait_for_models(|models| models.iter().any(|model| &*model.model == "other")).await
        );
        fleet.handle.select_and_reserve(SelectionRequest::new("other", vec![1; 16])).await.map(drop)
    };
    let served = tokio::time::timeout(Duration::from_secs(20), served).await;
    *gate.0.lock() = true;
    gate.1.notify_all();
    assert_eq!(served.expect("the other partition is served"), Ok(()));
    assert_eq!(tasks.shutdown(Duration::from_secs(20)).await, Vec::<String>::new());
    fleet.until_empty().await;
}

#[tokio::test]
async fn b09_a_worker_that_moved_without_leaving_is_called_at_its_new_address() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let log = Log::serve(&fleet.runtime, 10, 100).await;
    let lease = fleet.join(record(1, 10)).await;
    log.publish(log.store(1, 5)).await;
    fleet.until_cached(1, 5).await;
    let moved = WorkerRecord { endpoint: "http://127.0.0.1:99".into(), ..record(1, 10) };
    fleet.put(&moved, &lease).await;
    fleet.until(|loads| *loads[0].rows[0].info.endpoint == *moved.endpoint).await;
    assert_eq!(*fleet.handle.select(request(1, 5)).await.unwrap().endpoint, *moved.endpoint);
    assert_eq!(fleet.cached(1, 5).await, 5, "the same life keeps its cache");
}
