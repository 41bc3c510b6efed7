//! The scheduler as a whole: the invariants of the design, over single requests and random histories.

use super::*;
use crate::{
    Alias, ChosenBy, Outcome, Pin,
    policy_host::Clock,
    testing::{constrained, info, key, request, tainted},
};
use proptest::prelude::*;
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
fn requests_wait_while_all_rows_are_busy_and_go_in_order_when_one_is_free() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    for counter in 2..=3 {
        assert!(setup.submit(request(counter, 1)).is_none());
    }
    assert_eq!(setup.dispatch(1), []);
    setup.scheduler.prefill_complete(2, key(1), 1);
    assert_eq!(setup.dispatch(2), [(2, Ok(1)), (3, Ok(1))]);
}

#[test]
fn newcomers_do_not_overtake_waiters_that_need_the_same_rows() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    assert!(setup.submit(request(2, 100)).is_none());
    setup.scheduler.prefill_complete(0, key(1), 1);
    assert!(setup.submit(request(3, 1)).is_none(), "a row is free, but 2 was first");
    assert_eq!(setup.dispatch(0), [(2, Ok(1))]);
}

#[test]
fn b67_a_full_queue_rejects_and_names_its_limit() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    for counter in 2..=4 {
        assert!(setup.submit(request(counter, 1)).is_none());
    }
    assert_eq!(setup.submit(request(5, 1)), Some(Err(Rejection::QueueFull { waiting: 3, limit: 3 })));
}

#[test]
fn b63_a_cancelled_waiter_leaves_nothing_behind() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    assert!(setup.submit(request(2, 1)).is_none());
    setup.scheduler.release(0, key(2), false);
    setup.scheduler.release(0, key(1), false);
    assert_eq!(setup.dispatch(0), []);
    assert_eq!((setup.scheduler.waiting(), setup.scheduler.reservations()), (0, 0));
}

#[test]
fn b62_a_worker_that_joins_or_leaves_wakes_waiters() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    assert!(setup.submit(request(2, 1)).is_none());
    assert!(setup.submit(pinned(3, 1)).is_none());
    setup.scheduler.set_rows(vec![info(1, 0), info(2, 0)]);
    assert_eq!(setup.dispatch(0), [(2, Ok(2))]);
    setup.scheduler.set_rows(vec![info(2, 0)]);
    assert_eq!(setup.dispatch(0), [(3, Err(Outcome::ImpossiblePin))]);
}

#[test]
fn deadlines_end_the_wait() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    assert!(setup.submit(Request { deadline_ms: Some(50), ..request(2, 1) }).is_none());
    assert!(setup.submit(request(3, 1)).is_none());
    assert_eq!(setup.scheduler.next_deadline_ms(), Some(50));
    assert_eq!(setup.dispatch(49), []);
    assert_eq!(setup.dispatch(50), [(2, Err(Outcome::DeadlineExceeded))]);
    assert_eq!(setup.dispatch(60_000), [(3, Err(Outcome::DeadlineExceeded))], "the configured longest wait");
    let late = setup.submit(Request { deadline_ms: Some(0), ..request(4, 1) });
    assert_eq!(late, Some(Err(Rejection::DeadlineExceeded { waited_ms: 0 })));
}

#[test]
fn closing_answers_every_waiter_and_refuses_newcomers() {
    let mut setup = queueing(1);
    setup.booked(request(1, 100));
    assert!(setup.submit(request(2, 1)).is_none());
    let mut answers = Vec::new();
    setup.scheduler.close(&mut answers);
    assert_eq!(answers, [Answer { key: key(2), result: Err(Rejection::ShuttingDown) }]);
    assert_eq!(setup.submit(request(3, 1)), Some(Err(Rejection::ShuttingDown)));
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
fn retries_do_not_wait_for_one_another() {
    let mut setup = queueing(2);
    let failed = |setup: &mut Setup, counter| {
        let booked = setup.booked(request(counter, 100));
        Constraints { failed: vec![(booked.row.worker, booked.incarnation)], ..Constraints::default() }
    };
    let (first, second) = (failed(&mut setup, 1), failed(&mut setup, 2));
    assert!(setup.submit(constrained(1, first)).is_none(), "the other row is busy");
    assert!(setup.submit(constrained(2, second)).is_some(), "the row that 1 failed on is not");
    assert_eq!(setup.dispatch(0).len(), 1);
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
fn an_alias_in_use_is_a_conflict() {
    let mut setup = queueing(1);
    let named = |counter| {
        let alias = Alias { id: "mine".into(), fingerprint: counter };
        Request { alias: Some(alias), ..request(counter, 1) }
    };
    setup.booked(named(1));
    assert_eq!(setup.submit(named(2)), Some(Err(Rejection::IdConflict("mine".into()))));
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

#[derive(Clone, Debug)]
enum Step {
    Submit { blocks: u64, pin: Option<u64>, deadline_ms: Option<u64> },
    PrefillComplete(u64),
    Output(u64, u64),
    Release(u64),
    Fleet(u8),
    Tick(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let counter = 1..60_u64;
    prop_oneof![
        5 => (0..80_u64, proptest::option::weighted(0.2, 1..5_u64), proptest::option::weighted(0.3, 0..400_u64))
            .prop_map(|(blocks, pin, deadline_ms)| Step::Submit { blocks, pin, deadline_ms }),
        2 => counter.clone().prop_map(Step::PrefillComplete),
        1 => (counter.clone(), 0..9_u64).prop_map(|(counter, blocks)| Step::Output(counter, blocks)),
        3 => counter.prop_map(Step::Release),
        1 => any::<u8>().prop_map(Step::Fleet),
        1 => (1..50_u64).prop_map(Step::Tick),
    ]
}

/// What became of each request: `None` while it waits.
type Log1 = Vec<(u64, Option<Result<Row, Outcome>>)>;

fn play(policy: &str, steps: &[Step]) -> (Log1, Setup) {
    let mut setup = queueing(4);
    setup.scheduler.policy = setup_with(policy, KvRouterConfig::default(), Vec::new()).scheduler.policy;
    let (mut answered, mut now_ms, mut counter) = (Log1::new(), 0, 0);
    let mut note = |answer: Answer| {
        let result = answer.result.map(|selection| selection.row).map_err(|rejection| rejection.outcome());
        answered.push((answer.key.counter, Some(result)));
    };
    for step in steps {
        match *step {
            Step::Submit { blocks, pin, deadline_ms } => {
                counter += 1;
                let mut wanted =
                    pin.map_or_else(|| request(counter, blocks), |worker| pinned(counter, worker));
                wanted.arrival_ms = now_ms;
                wanted.deadline_ms = deadline_ms.map(|wait_ms| now_ms + wait_ms);
                setup.scheduler.submit(now_ms, wanted, &setup.index).into_iter().for_each(&mut note);
            }
            Step::PrefillComplete(counter) => setup.scheduler.prefill_complete(now_ms, key(counter), 1),
            Step::Output(counter, blocks) => setup.scheduler.output_block(now_ms, key(counter), blocks),
            Step::Release(counter) => setup.scheduler.release(now_ms, key(counter), false),
            Step::Fleet(known) => {
                let rows = (1..=4).filter(|worker| known & (1 << worker) != 0).map(|worker| info(worker, 0));
                setup.scheduler.set_rows(rows.collect());
            }
            Step::Tick(ms) => now_ms += ms,
        }
        let mut answers = Vec::new();
        setup.scheduler.dispatch(now_ms, &setup.index, &mut answers);
        answers.into_iter().for_each(&mut note);
    }
    let mut answers = Vec::new();
    setup.scheduler.close(&mut answers);
    answers.into_iter().for_each(&mut note);
    (answered, setup)
}

proptest! {
    /// Invariants 2 (empty at rest), 5 (every request is answered once) and 6 (same inputs, same decisions).
    #[test]
    fn invariants_2_5_and_6_hold_over_random_histories(
        steps in proptest::collection::vec(step(), 1..120),
        policy in proptest::sample::select(Catalogue::built_in().names().map(str::to_owned).collect::<Vec<_>>()),
    ) {
        let (answered, mut setup) = play(&policy, &steps);
        prop_assert_eq!(&answered, &play(&policy, &steps).0);
        let mut counters: Vec<_> = answered.iter().map(|(counter, _)| *counter).collect();
        counters.sort_unstable();
        let submitted = steps.iter().filter(|step| matches!(step, Step::Submit { .. })).count();
        prop_assert!(counters.windows(2).all(|pair| pair[0] < pair[1]), "nobody is answered twice");
        let cancelled = submitted - counters.len();
        let releases = steps.iter().filter(|step| matches!(step, Step::Release(_))).count();
        prop_assert!(cancelled <= releases, "only a waiter that was cancelled goes without an answer");
        for counter in 1..=submitted as u64 {
            setup.scheduler.release(u64::MAX / 2, key(counter), false);
        }
        prop_assert_eq!((setup.scheduler.reservations(), setup.scheduler.waiting()), (0, 0));
        prop_assert_eq!(setup.scheduler.book.kept_hashes(), 0);
        for state in setup.scheduler.row_states() {
            prop_assert_eq!(state.load, RowLoad::default());
        }
    }
}
