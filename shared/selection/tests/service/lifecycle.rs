//! A reservation's life: booked, told, moved, released, on every path.

use crate::fleet::{Fleet, record, request};
use std::{sync::Arc, time::Duration};
use switchtower_cluster::DistributedRuntime;
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerScorer, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};
use switchtower_scheduling::Rejection;
use switchtower_selection::{
    FreeOutcome, Reservation, SelectionOptions, SelectionServiceBuilder, WorkerFailure,
};

#[tokio::test]
async fn a_reservation_is_booked_told_and_released_by_drop() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let _lease = fleet.join(record(1, 10)).await;
    let mut reservation = fleet.handle.select_and_reserve(request(1, 4)).await.unwrap();
    fleet.until(|loads| loads[0].rows[0].load.active_prefill_tokens == 64).await;
    reservation.prefill_complete();
    reservation.output_tokens(17);
    fleet.until(|loads| loads[0].rows[0].load.active_prefill_tokens == 0).await;
    fleet.until(|loads| loads[0].rows[0].load.output_blocks == 2).await;
    drop(reservation);
    fleet.until_empty().await;
}

#[tokio::test]
async fn select_books_nothing() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let _lease = fleet.join(record(1, 10)).await;
    fleet.handle.select(request(1, 4)).await.unwrap();
    fleet.until_empty().await;
}

#[tokio::test]
async fn a_model_that_nobody_serves_has_nothing_eligible() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let rejection = fleet.handle.select_and_reserve(request(1, 4)).await.unwrap_err();
    assert!(matches!(rejection, Rejection::NothingEligible(_)));
}

#[tokio::test]
async fn a_retry_moves_the_booking_and_a_failed_connection_inhibits_the_worker_for_all() {
    let config = KvRouterConfig { policy: "active-requests".into(), ..KvRouterConfig::default() };
    let fleet = Fleet::start(config).await;
    let (_one, _two) = (fleet.join(record(1, 10)).await, fleet.join(record(2, 20)).await);
    let mut reservation = fleet.handle.select_and_reserve(request(1, 4)).await.unwrap();
    let first = reservation.selection().row;
    let second = reservation.retry_elsewhere(WorkerFailure::Connect).await.unwrap().row;
    assert_ne!(first, second);
    for seed in 2..6 {
        let other = fleet.handle.select(request(seed, 4)).await.unwrap();
        assert_eq!(other.row, second, "the worker that refused the connection is left alone");
    }
    let nowhere = reservation.retry_elsewhere(WorkerFailure::Failed).await.unwrap_err();
    assert!(matches!(nowhere, Rejection::NothingEligible(_)));
    drop(reservation);
    fleet.until_empty().await;
}

fn queueing() -> KvRouterConfig {
    KvRouterConfig { queue_threshold: Some(1.0), ..KvRouterConfig::default() }
}

#[tokio::test]
async fn b63_a_caller_that_leaves_the_queue_leaves_nothing_behind() {
    let fleet = Fleet::start(queueing()).await;
    let _lease = fleet.join(record(1, 10)).await;
    let busy = fleet.handle.select_and_reserve(request(1, 100)).await.unwrap();
    let handle = fleet.handle.clone();
    let waiter = fleet.runtime.tasks().spawn_named("waiter", async move {
        let _reservation = handle.select_and_reserve(request(2, 4)).await;
        panic!("nobody may be served while the worker is busy");
    });
    fleet.until(|loads| loads[0].waiting == 1).await;
    waiter.abort();
    fleet.until(|loads| loads[0].waiting == 0).await;
    drop(busy);
    fleet.until_empty().await;
}

#[tokio::test]
async fn invariant_5_waiters_are_served_when_the_prefill_before_them_completes_or_rejected_at_the_end() {
    let fleet = Fleet::start(queueing()).await;
    let _lease = fleet.join(record(1, 10)).await;
    let mut busy = fleet.handle.select_and_reserve(request(1, 100)).await.unwrap();
    let (next, last) = tokio::join!(
        async {
            let mut next = fleet.handle.select_and_reserve(request(2, 100)).await.unwrap();
            next.prefill_complete();
            next
        },
        async {
            fleet.until(|loads| loads[0].waiting == 1).await;
            busy.prefill_complete();
            fleet.handle.select_and_reserve(request(3, 100)).await
        }
    );
    let (_last, handle) = (last.unwrap(), fleet.handle.clone());
    let waiting = fleet.runtime.tasks().spawn("waiter", switchtower_runtime::OnError::Log, async move {
        match handle.select_and_reserve(request(4, 1)).await {
            Err(Rejection::ShuttingDown) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    fleet.until(|loads| loads[0].waiting == 1).await;
    fleet.service.close().await;
    while !waiting.is_finished() {
        tokio::task::yield_now().await;
    }
    assert!(matches!(fleet.handle.select_and_reserve(request(5, 1)).await, Err(Rejection::ShuttingDown)));
    drop((busy, next, _last));
    fleet.until_empty().await;
}

#[tokio::test]
async fn deadlines_are_kept_without_other_traffic() {
    let fleet = Fleet::start(queueing()).await;
    let _lease = fleet.join(record(1, 10)).await;
    let _busy = fleet.handle.select_and_reserve(request(1, 100)).await.unwrap();
    let mut late = request(2, 1);
    late.deadline = Some(Duration::from_millis(20));
    assert!(matches!(fleet.handle.select_and_reserve(late).await, Err(Rejection::DeadlineExceeded { .. })));
}

#[tokio::test]
async fn more_reservations_than_the_limit_are_rejected() {
    let options = SelectionOptions { reservations_max: 2, ..SelectionOptions::default() };
    let fleet = Fleet::with_options(KvRouterConfig::default(), options).await;
    let _lease = fleet.join(record(1, 10)).await;
    let held: Vec<Reservation> = [
        fleet.handle.select_and_reserve(request(1, 1)).await,
        fleet.handle.select_and_reserve(request(2, 1)).await,
    ]
    .into_iter()
    .collect::<Result<_, _>>()
    .unwrap();
    let rejection = fleet.handle.select_and_reserve(request(3, 1)).await.unwrap_err();
    assert_eq!(rejection, Rejection::TooManyReservations { limit: 2 });
    drop(held);
    fleet.until_empty().await;
    assert!(fleet.handle.select_and_reserve(request(3, 1)).await.is_ok());
}

#[tokio::test]
async fn book_rule_3_detached_reservations_are_idempotent_by_id() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let _lease = fleet.join(record(1, 10)).await;
    let named = |seed| {
        let mut named = request(seed, 4);
        named.reservation_id = Some("mine".into());
        named
    };
    let first = fleet.handle.reserve_detached(named(1)).await.unwrap();
    assert_eq!(fleet.handle.reserve_detached(named(1)).await.unwrap(), first);
    assert_eq!(fleet.handle.reserve_detached(named(2)).await, Err(Rejection::IdConflict("mine".into())));
    assert!(fleet.handle.prefill_complete("mine") && fleet.handle.output_block("mine", 3));
    fleet.until(|loads| loads[0].rows[0].load.output_blocks == 3 && loads[0].reservations == 1).await;
    assert!(!fleet.handle.prefill_complete("yours"));
    assert_eq!(fleet.handle.free("mine").await, FreeOutcome::Freed);
    fleet.until_empty().await;
    assert_eq!(fleet.handle.free("mine").await, FreeOutcome::AlreadyReleased);
    assert_eq!(fleet.handle.free("yours").await, FreeOutcome::Unknown);
    let again = fleet.handle.reserve_detached(named(2)).await.unwrap();
    assert_ne!(again.selection.key, first.selection.key);
}

#[tokio::test]
async fn a_detached_reservation_that_nobody_calls_for_ends() {
    let options = SelectionOptions { idle_lease: Duration::from_millis(30), ..SelectionOptions::default() };
    let fleet = Fleet::with_options(KvRouterConfig::default(), options).await;
    let _lease = fleet.join(record(1, 10)).await;
    let held = fleet.handle.reserve_detached(request(1, 4)).await.unwrap();
    fleet.until_empty().await;
    assert_eq!(fleet.handle.free(&held.id).await, FreeOutcome::Unknown, "idleness leaves no tombstone");
}

struct Panics;

impl WorkerScorer for Panics {
    fn score(
        &mut self,
        _: &WorkerSelectionContext<'_>,
        _: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        panic!("as policies do")
    }
}

#[tokio::test]
async fn b83_a_policy_that_panics_costs_requests_their_scores_and_nothing_else() {
    let factory = |config: &KvRouterConfig,
                   label: &'static str,
                   partition: RoutingPartitionRef<'_>|
     -> WorkerSelectionPolicy {
        switchtower_policies::cheapest_by(Panics, config, label, partition)
    };
    let runtime = DistributedRuntime::in_memory("test");
    let builder = SelectionServiceBuilder::new(KvRouterConfig::default());
    let builder = builder.worker_selection_policy_factory(factory).distributed_runtime(runtime.clone());
    let service = builder.build().await.unwrap();
    let fleet = Fleet { runtime, handle: service.handle(), service };
    let _lease = fleet.join(record(1, 10)).await;
    let held =
        futures::future::join_all((0..50).map(|seed| fleet.handle.select_and_reserve(request(seed, 1))))
            .await;
    assert!(held.iter().all(Result::is_ok));
    let health = fleet.handle.loads().await[0].policy_health.clone();
    assert!(health.quarantined, "{health:?}");
    drop(held);
    fleet.until_empty().await;
}

#[tokio::test]
async fn a_policy_or_setting_that_cannot_be_is_refused_at_start() {
    let unknown = KvRouterConfig { policy: "wishful".into(), ..KvRouterConfig::default() };
    let error = SelectionServiceBuilder::new(unknown).build().await.err().unwrap().to_string();
    assert!(error.contains("wishful") && error.contains("least-loaded"), "{error}");
    let broken = KvRouterConfig { router_temperature: f64::NAN, ..KvRouterConfig::default() };
    let error = SelectionServiceBuilder::new(broken).build().await.err().unwrap().to_string();
    assert!(error.contains("router_temperature"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b42_ten_thousand_callers_that_leave_at_random_moments_leave_nothing_behind() {
    let fleet = Arc::new(Fleet::start(queueing()).await);
    let mut leases = Vec::new();
    for worker in 1..=4 {
        leases.push(fleet.join(record(worker, worker * 10)).await);
    }
    let tasks = fleet.runtime.tasks().child("callers");
    for seed in 0..10_000_u32 {
        let handle = fleet.handle.clone();
        let caller = tasks.spawn_named("caller", async move {
            let Ok(mut reservation) = handle.select_and_reserve(request(seed % 97, seed % 70)).await else {
                return;
            };
            for step in 0..seed % 5 {
                tokio::task::yield_now().await;
                reservation.prefill_complete();
                reservation.output_tokens(u64::from(step * 20));
            }
            if seed % 11 == 0 {
                let _moved = reservation.retry_elsewhere(WorkerFailure::Failed).await;
            }
        });
        if seed % 3 == 0 {
            tokio::task::yield_now().await;
            caller.abort();
        }
    }
    assert_eq!(tasks.shutdown(Duration::from_secs(30)).await, Vec::<String>::new());
    fleet.until_empty().await;
}
