//! The scheduler as a whole: what is chosen and booked. Who waits and for how long is in [`waiting`], the invariants over
//! random histories are in [`histories`].

mod histories;
mod waiting;

use super::*;
use crate::{
    Alias, ChosenBy, Constraints, Outcome, Pin, Request, Selection,
    policy_host::Clock,
    testing::{constrained, info, key, request, tainted},
};
use switchtower_ids::{PartitionId, Tier};
use switchtower_kv::{event::KvEvent, index::RowSlot};
use switchtower_policies::Catalogue;
use switchtower_policy::WorkerSelectionPolicyFactory;

struct NoTime;

impl Clock for NoTime {
    fn now_us(&self) -> u64 {
        0
    }
}

struct Setup {
    scheduler: Scheduler,
    index: PrefixIndex,
}

fn named(policy: &str) -> Arc<dyn WorkerSelectionPolicyFactory> {
    Catalogue::built_in().get(policy).unwrap()
}

fn setup_with(policy: &str, config: KvRouterConfig, rows: Vec<RowInfo>) -> Setup {
    let parts = PolicyParts {
        config: Arc::new(config),
        partition: PartitionId::aggregated("m"),
        factory: named(policy),
        fallback: named("least-loaded"),
        clock: Box::new(NoTime),
    };
    let mut scheduler = Scheduler::new(16, parts);
    scheduler.set_rows(rows);
    Setup { scheduler, index: PrefixIndex::default() }
}

/// Workers that are busy with more than 1,000 prefill tokens each.
fn queueing(workers: u64) -> Setup {
    let config =
        KvRouterConfig { queue_threshold: Some(1.0), queue_limit_requests: 3, ..KvRouterConfig::default() };
    setup_with("active-requests", config, (1..=workers).map(|worker| info(worker, 0)).collect())
}

impl Setup {
    fn submit(&mut self, request: Request) -> Option<Result<Selection, Rejection>> {
        self.scheduler.submit(0, request, &self.index).map(|answer| answer.result)
    }

    fn booked(&mut self, request: Request) -> Selection {
        self.submit(request).expect("does not wait").expect("is booked")
    }

    fn dispatch(&mut self, now_ms: u64) -> Vec<(u64, Result<u64, Outcome>)> {
        let mut answers = Vec::new();
        self.scheduler.dispatch(now_ms, &self.index, &mut answers);
        let short = |result: Result<Selection, Rejection>| match result {
            Ok(selection) => Ok(selection.row.worker.0),
            Err(rejection) => Err(rejection.outcome()),
        };
        answers.into_iter().map(|answer| (answer.key.counter, short(answer.result))).collect()
    }

    fn requests_on(&self, worker: u64) -> u64 {
        self.scheduler.book.load(Row::new(worker, 0)).active_requests
    }
}

fn pinned(counter: u64, worker: u64) -> Request {
    let pin = Pin { worker: WorkerId(worker), rank: None };
    constrained(counter, Constraints { pin: Some(pin), ..Constraints::default() })
}

#[test]
fn a_request_goes_to_the_row_that_the_policy_prefers_and_is_booked_there() {
    let mut setup = setup_with("active-requests", KvRouterConfig::default(), vec![info(1, 0), info(2, 0)]);
    let first = setup.booked(request(1, 4));
    let second = setup.booked(request(2, 4));
    assert_ne!(first.row, second.row);
    assert_eq!((first.attempt, first.candidates, first.chosen_by), (1, 2, ChosenBy::Policy));
    assert_eq!((setup.requests_on(1), setup.requests_on(2)), (1, 1));
    setup.scheduler.release(0, key(1), false);
    setup.scheduler.release(0, key(2), false);
    assert_eq!(setup.scheduler.reservations(), 0);
}

#[test]
fn a_cached_prefix_attracts_its_request_and_is_not_booked_as_prefill() {
    let mut setup = setup_with("additive", KvRouterConfig::default(), vec![info(1, 0), info(2, 0)]);
    let mut wanted = request(1, 10);
    wanted.prompt_tokens += 5;
    let stored = KvEvent::Stored { tier: Tier::Device, parent: None, blocks: wanted.blocks[..8].to_vec() };
    setup.index.apply(RowSlot(20), &stored).unwrap();
    let selection = setup.booked(wanted);
    assert_eq!((selection.row, selection.cached_tokens, selection.overlap.device), (Row::new(2, 0), 128, 8));
    assert_eq!(setup.scheduler.book.load(Row::new(2, 0)).active_prefill_tokens, 165 - 128);
}

#[test]
fn a_fully_cached_prompt_still_books_one_token_of_prefill() {
    let mut setup = setup_with("additive", KvRouterConfig::default(), vec![info(1, 0)]);
    let wanted = request(1, 4);
    let stored = KvEvent::Stored { tier: Tier::Device, parent: None, blocks: wanted.blocks.to_vec() };
    setup.index.apply(RowSlot(10), &stored).unwrap();
    assert_eq!(setup.booked(wanted).cached_tokens, 63);
}

#[test]
fn decode_cost_counts_a_shared_prefix_once() {
    let mut setup = setup_with("active-requests", KvRouterConfig::default(), vec![info(1, 0)]);
    let mut twin = request(2, 32);
    let first = request(1, 32);
    twin.blocks = Arc::clone(&first.blocks);
    setup.booked(first);
    setup.booked(twin);
    assert_eq!(setup.scheduler.book.load(Row::new(1, 0)).prompt_blocks, 32);
}

#[test]
fn preferred_taints_attract_and_required_ones_bind() {
    let rows = vec![tainted(1, &[]), tainted(2, &["fast"])];
    let mut setup = setup_with("additive", KvRouterConfig::default(), rows);
    let prefer = Constraints { preferred_taints: vec!["fast".into()], ..Constraints::default() };
    assert_eq!(setup.booked(constrained(1, prefer)).row, Row::new(2, 0));
    let require = Constraints { required_taints: vec!["slow".into()], ..Constraints::default() };
    let rejection = setup.submit(constrained(2, require)).unwrap().unwrap_err();
    assert_eq!(rejection.outcome(), Outcome::NothingEligible);
}

#[test]
fn b41_maintenance_of_the_registry_leaves_loads_alone() {
    let rows = || (1..=3).map(|worker| info(worker, 0)).collect::<Vec<_>>();
    let mut setup = setup_with("active-requests", KvRouterConfig::default(), rows());
    for counter in 1..=8 {
        setup.booked(pinned(counter, 1));
    }
    let load = setup.scheduler.book.load(Row::new(1, 0));
    for revision in 2..5 {
        let taints: Arc<[String]> = vec![format!("revision={revision}")].into();
        let updated = rows().into_iter().map(|row| RowInfo { revision, taints: Arc::clone(&taints), ..row });
        setup.scheduler.set_rows(updated.collect());
        let report = RowReport { blocks_used: 0, blocks_total: 1_000 };
        setup.scheduler.report(revision, Row::new(1, 0), info(1, 0).incarnation, report);
        assert_eq!(setup.scheduler.book.load(Row::new(1, 0)), load);
    }
    assert_ne!(setup.booked(request(9, 1)).row, Row::new(1, 0), "the busy one does not look idle");
}

#[test]
fn b72_under_every_policy_the_only_row_below_its_threshold_gets_everything() {
    let report = |used| RowReport { blocks_used: used, blocks_total: 1_000 };
    for policy in Catalogue::built_in().names() {
        let config = KvRouterConfig { overload_blocks_fraction: Some(0.6), ..KvRouterConfig::default() };
        let mut setup = setup_with(policy, config, (1..=4).map(|worker| info(worker, 0)).collect());
        let say = |setup: &mut Setup, worker, used| {
            setup.scheduler.report(0, Row::new(worker, 0), info(worker, 0).incarnation, report(used));
        };
        (1..=3).for_each(|worker| say(&mut setup, worker, 990));
        for counter in 1..=20 {
            assert_eq!(setup.booked(request(counter, 1)).row, Row::new(4, 0), "{policy}");
        }
        say(&mut setup, 4, 601);
        assert_eq!(setup.submit(request(30, 1)), Some(Err(Rejection::AllOverloaded { overloaded: 4 })));
        say(&mut setup, 2, 600);
        assert_eq!(setup.booked(request(31, 1)).row, Row::new(2, 0), "{policy}");
    }
}

#[test]
fn b76_a_worker_that_fell_silent_while_it_was_overloaded_is_used_again() {
    let config = KvRouterConfig { overload_blocks_fraction: Some(0.6), ..KvRouterConfig::default() };
    let mut setup = setup_with("least-loaded", config, vec![info(1, 0)]);
    let full = RowReport { blocks_used: 990, blocks_total: 1_000 };
    setup.scheduler.report(0, Row::new(1, 0), info(1, 0).incarnation, full);
    let life_ms = WorkerTable::REPORT_LIFE_MS;
    let mut at = |now_ms, counter| {
        let request = Request { arrival_ms: now_ms, ..request(counter, 1) };
        setup.scheduler.submit(now_ms, request, &setup.index).unwrap().result.map_err(|no| no.outcome())
    };
    assert_eq!(at(life_ms - 1, 1).unwrap_err(), Outcome::AllOverloaded);
    assert_eq!(at(life_ms, 2).unwrap().row, Row::new(1, 0));
}

#[test]
fn b49_a_burst_of_equal_requests_spreads_evenly() {
    for policy in ["active-requests", "least-loaded", "additive"] {
        let rows = (1..=8).map(|worker| info(worker, 0)).collect();
        let mut setup = setup_with(policy, KvRouterConfig::default(), rows);
        (1..=64).for_each(|counter| drop(setup.booked(request(counter, 4))));
        assert!((1..=8).all(|worker| setup.requests_on(worker) == 8), "{policy}: each choice sees the last");
    }
}

#[test]
fn b88_requests_and_rows_of_any_size_do_no_harm() {
    let rows = vec![
        RowInfo { total_blocks: Some(0), max_batch_tokens: Some(0), ..info(1, 0) },
        RowInfo { total_blocks: Some(u64::MAX), max_batch_tokens: Some(u64::MAX), ..info(2, 1_023) },
        RowInfo { total_blocks: None, max_batch_tokens: None, ..info(3, 0) },
    ];
    for policy in Catalogue::built_in().names() {
        let config = KvRouterConfig {
            queue_threshold: Some(1e6),
            overload_blocks_fraction: Some(1e6),
            overload_prefill_tokens: Some(u64::MAX),
            ..KvRouterConfig::default()
        };
        let mut setup = setup_with(policy, config, rows.clone());
        for (counter, tokens) in [(1, 0), (2, u64::MAX), (3, u64::MAX), (4, 1)] {
            let huge = Request { prompt_tokens: tokens, ..request(counter, 0) };
            setup.booked(Request { expected_output_tokens: Some(u64::MAX), ..huge });
            setup.scheduler.output_block(0, key(counter), u64::MAX);
        }
        (1..=4).for_each(|counter| setup.scheduler.release(u64::MAX, key(counter), true));
        assert!(setup.scheduler.row_states().iter().all(|row| row.load == RowLoad::default()), "{policy}");
    }
}

#[test]
fn a_retry_moves_the_reservation_away_from_the_worker_that_failed() {
    let mut setup = setup_with("active-requests", KvRouterConfig::default(), vec![info(1, 0), info(2, 0)]);
    let first = setup.booked(request(1, 4));
    let failed = vec![(first.row.worker, first.incarnation)];
    let second =
        setup.booked(constrained(1, Constraints { failed: failed.clone(), ..Constraints::default() }));
    assert_eq!(second.attempt, 2);
    assert_ne!(second.row, first.row);
    assert_eq!(setup.scheduler.reservations(), 1);
    assert_eq!(setup.requests_on(first.row.worker.0), 0);
    setup.scheduler.set_rows(vec![info(first.row.worker.0, 0)]);
    let nowhere =
        setup.submit(constrained(1, Constraints { failed, ..Constraints::default() })).unwrap().unwrap_err();
    assert_eq!(nowhere.outcome(), Outcome::NothingEligible);
    setup.scheduler.release(0, key(1), false);
    assert_eq!(setup.scheduler.reservations(), 0);
}

#[test]
fn an_inhibited_worker_is_left_alone_unless_there_is_nobody_else() {
    let mut setup = setup_with("active-requests", KvRouterConfig::default(), vec![info(1, 0), info(2, 0)]);
    setup.scheduler.inhibit(WorkerId(1), info(1, 0).incarnation, 100);
    for counter in 1..=3 {
        assert_eq!(setup.booked(request(counter, 1)).row, Row::new(2, 0));
    }
    assert_eq!(setup.booked(pinned(4, 1)).row, Row::new(1, 0));
    let later =
        setup.scheduler.submit(100, Request { arrival_ms: 100, ..request(5, 1) }, &setup.index).unwrap();
    assert_eq!(
        later.result.unwrap().row,
        Row::new(1, 0),
        "the inhibition is over and worker 1 has less to do"
    );
}

#[test]
fn a_preview_books_nothing() {
    let mut setup = setup_with("active-requests", KvRouterConfig::default(), vec![info(1, 0)]);
    let selection = setup.scheduler.preview(0, &request(1, 4), &setup.index).unwrap();
    assert_eq!((selection.row, setup.scheduler.reservations()), (Row::new(1, 0), 0));
}

#[test]
fn b90_a_fleet_that_is_gone_answers_at_once_and_serves_when_it_is_back() {
    let mut setup = setup_with("additive", KvRouterConfig::default(), Vec::new());
    assert_eq!(setup.submit(request(1, 1)).unwrap().unwrap_err().outcome(), Outcome::NothingEligible);
    setup.scheduler.set_rows(vec![info(1, 0)]);
    assert_eq!(setup.booked(request(2, 1)).row, Row::new(1, 0));
}
