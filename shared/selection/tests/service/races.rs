//! Callers that race, leave half way or use one name twice: nobody is booked twice, and nothing stays behind.

use crate::fleet::{Fleet, record, request};
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use switchtower_policy::KvRouterConfig;
use switchtower_scheduling::Rejection;
use switchtower_selection::{FreeOutcome, SelectionOptions, SelectionRequest, WorkerFailure};

fn queueing() -> KvRouterConfig {
    KvRouterConfig { queue_threshold: Some(1.0), ..KvRouterConfig::default() }
}

fn named(seed: u32, id: &str) -> SelectionRequest {
    SelectionRequest { reservation_id: Some(id.into()), ..request(seed, 4) }
}

#[tokio::test]
async fn book_rule_3_calls_that_race_for_one_id_book_once() {
    let fleet = Fleet::start(queueing()).await;
    let _lease = fleet.join(record(1, 10)).await;
    let mut busy = fleet.handle.select_and_reserve(request(1, 100)).await.unwrap();
    let both = async {
        tokio::join!(
            fleet.handle.reserve_detached(named(2, "mine")),
            fleet.handle.reserve_detached(named(2, "mine")),
            fleet.handle.reserve_detached(named(3, "mine")),
        )
    };
    let free_worker = async {
        fleet.until(|loads| loads[0].waiting == 1).await;
        busy.prefill_complete();
    };
    let ((first, second, other), ()) = tokio::join!(both, free_worker);
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(other, Err(Rejection::IdConflict("mine".into())));
    drop(busy);
    fleet.until(|loads| loads[0].reservations == 1).await;
    assert_eq!(fleet.handle.free("mine").await, FreeOutcome::Freed);
    fleet.until_empty().await;
}

#[tokio::test]
async fn a_detached_request_that_is_freed_while_it_waits_is_withdrawn() {
    let fleet = Fleet::start(queueing()).await;
    let _lease = fleet.join(record(1, 10)).await;
    let busy = fleet.handle.select_and_reserve(request(1, 100)).await.unwrap();
    let (reserved, freed) = tokio::join!(fleet.handle.reserve_detached(named(2, "mine")), async {
        fleet.until(|loads| loads[0].waiting == 1).await;
        fleet.handle.free("mine").await
    });
    assert_eq!((reserved, freed), (Err(Rejection::Cancelled), FreeOutcome::Freed));
    fleet.until(|loads| loads[0].waiting == 0).await;
    drop(busy);
    fleet.until_empty().await;
}

#[tokio::test]
async fn b79_an_id_whose_first_caller_left_is_free_for_another_request_at_once() {
    let fleet = Fleet::start(queueing()).await;
    let _lease = fleet.join(record(1, 10)).await;
    for round in 0..200 {
        let busy = fleet.handle.select_and_reserve(request(1, 100)).await.unwrap();
        {
            let mut left = pin!(fleet.handle.reserve_detached(named(2, "x")));
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..round % 4 {
                assert!(left.as_mut().poll(&mut context).is_pending());
                tokio::task::yield_now().await;
            }
        }
        drop(busy);
        let other = fleet.handle.reserve_detached(named(3 + round, "x")).await.unwrap();
        assert_eq!(other.selection.prompt_tokens, 64);
        assert_eq!(fleet.handle.free("x").await, FreeOutcome::Freed);
    }
    fleet.until_empty().await;
}

#[tokio::test]
async fn b58_a_retry_that_is_given_up_half_way_and_tried_again_leaves_nothing_behind() {
    let fleet = Fleet::start(queueing()).await;
    let (_one, _two) = (fleet.join(record(1, 10)).await, fleet.join(record(2, 20)).await);
    let mut first = fleet.handle.select_and_reserve(request(1, 100)).await.unwrap();
    let second = fleet.handle.select_and_reserve(request(2, 100)).await.unwrap();
    for _ in 0..2 {
        let mut retry = pin!(first.retry_elsewhere(WorkerFailure::Failed));
        assert!(matches!(retry.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
        fleet.until(|loads| loads[0].waiting == 1).await;
    }
    drop(first);
    fleet.until(|loads| loads[0].waiting == 0).await;
    drop(second);
    fleet.until_empty().await;
    let free = fleet.handle.select_and_reserve(request(3, 100)).await.unwrap();
    fleet.until(|loads| loads[0].reservations == 1).await;
    drop(free);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b58_all_capacity_is_back_after_callers_left_at_every_moment() {
    let limit = 64;
    let options =
        SelectionOptions { reservations_max: limit, commands_max: 8, ..SelectionOptions::default() };
    let fleet = Arc::new(Fleet::with_options(queueing(), options).await);
    let _lease = fleet.join(record(1, 10)).await;
    let tasks = fleet.runtime.tasks().child("callers");
    for seed in 0..10_000_u32 {
        let handle = fleet.handle.clone();
        let caller = tasks.spawn_named("caller", async move {
            let _held = handle.select_and_reserve(request(seed % 97, seed % 70)).await;
            tokio::task::yield_now().await;
        });
        for _ in 0..seed % 7 {
            tokio::task::yield_now().await;
        }
        caller.abort();
    }
    assert_eq!(tasks.shutdown(Duration::from_secs(30)).await, Vec::<String>::new());
    fleet.until_empty().await;
    let all =
        futures::future::join_all((0..64).map(|seed| fleet.handle.select_and_reserve(request(seed, 0))));
    assert_eq!(all.await.iter().filter(|reserved| reserved.is_ok()).count(), limit);
}

#[tokio::test]
async fn b78_a_burst_never_admits_more_than_the_limit() {
    let options = SelectionOptions { reservations_max: 100, ..SelectionOptions::default() };
    let fleet = Fleet::with_options(KvRouterConfig::default(), options).await;
    let _lease = fleet.join(record(1, 10)).await;
    let burst =
        futures::future::join_all((0..1_000).map(|seed| fleet.handle.select_and_reserve(request(seed, 1))));
    let (admitted, refused): (Vec<_>, Vec<_>) = burst.await.into_iter().partition(Result::is_ok);
    assert_eq!(admitted.len(), 100);
    let limit = Rejection::TooManyReservations { limit: 100 };
    assert!(refused.into_iter().all(|refused| refused.unwrap_err() == limit));
    drop(admitted);
    fleet.until_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b80_many_callers_through_a_channel_for_one_message_all_come_to_an_end() {
    let options = SelectionOptions { commands_max: 1, ..SelectionOptions::default() };
    let fleet = Arc::new(Fleet::with_options(queueing(), options).await);
    let (_one, _two) = (fleet.join(record(1, 10)).await, fleet.join(record(2, 20)).await);
    let callers = (0..1_000).map(|seed| {
        let handle = fleet.handle.clone();
        async move {
            let mut held = handle.select_and_reserve(request(seed % 97, seed % 100)).await?;
            held.prefill_complete();
            for total in 1..5 {
                held.output_tokens(total * 16);
                tokio::task::yield_now().await;
            }
            Ok::<(), Rejection>(())
        }
    });
    let ended = tokio::time::timeout(Duration::from_secs(60), futures::future::join_all(callers));
    assert!(ended.await.expect("nobody waits for ever").iter().all(Result::is_ok));
    fleet.until_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b49_a_burst_of_equal_requests_spreads_over_idle_workers() {
    let config = KvRouterConfig { policy: "least-loaded".into(), ..KvRouterConfig::default() };
    let fleet = Arc::new(Fleet::start(config).await);
    let mut leases = Vec::new();
    for worker in 1..=8 {
        leases.push(fleet.join(record(worker, worker)).await);
    }
    for round in 0..20 {
        let burst = (0..64).map(|seed| fleet.handle.select_and_reserve(request(round * 64 + seed, 4)));
        let held = futures::future::join_all(burst).await;
        let on = |worker| {
            let rows = held.iter().map(|held| held.as_ref().unwrap().selection().row.worker.0);
            rows.filter(|row| *row == worker).count()
        };
        assert!((1..=8).all(|worker| (7..=9).contains(&on(worker))), "round {round}");
        drop(held);
        fleet.until_empty().await;
    }
}

#[tokio::test]
async fn b46_a_holder_that_panics_releases_its_reservation() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let _lease = fleet.join(record(1, 10)).await;
    for _ in 0..20 {
        let mut held = fleet.handle.select_and_reserve(request(1, 4)).await.unwrap();
        held.prefill_complete();
        let holder = fleet.runtime.tasks().spawn_named("holder", async move {
            let _held = held;
            panic!("as a relay might while it cleans up");
        });
        while !holder.is_finished() {
            tokio::task::yield_now().await;
        }
    }
    fleet.until_empty().await;
}

#[tokio::test]
async fn b61_requests_without_a_name_or_with_an_empty_one_never_collide() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let _lease = fleet.join(record(1, 10)).await;
    let (first, second) = (
        fleet.handle.select_and_reserve(named(1, "")).await.unwrap(),
        fleet.handle.select_and_reserve(named(2, "")).await.unwrap(),
    );
    let (third, fourth) = (
        fleet.handle.reserve_detached(named(3, "")).await.unwrap(),
        fleet.handle.reserve_detached(named(3, "")).await.unwrap(),
    );
    assert_ne!(third.id, fourth.id);
    drop(first);
    fleet.until(|loads| loads[0].reservations == 3).await;
    drop(second);
    for detached in [third, fourth] {
        assert_eq!(fleet.handle.free(&detached.id).await, FreeOutcome::Freed);
    }
    fleet.until_empty().await;
    let long = fleet.handle.reserve_detached(named(1, &"x".repeat(10_000))).await;
    assert!(matches!(long, Err(Rejection::InvalidId { bytes: 10_000, .. })));
}

#[tokio::test]
async fn b88_output_totals_beyond_reason_do_not_end_the_scheduler() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let _lease = fleet.join(record(1, 10)).await;
    for id in ["a", "b", "c"] {
        fleet.handle.reserve_detached(named(1, id)).await.unwrap();
        assert!(fleet.handle.output_block(id, u64::MAX));
    }
    fleet.until(|loads| loads[0].rows[0].load.output_blocks > 0).await;
    for id in ["a", "b", "c"] {
        assert_eq!(fleet.handle.free(id).await, FreeOutcome::Freed);
    }
    fleet.until_empty().await;
}
