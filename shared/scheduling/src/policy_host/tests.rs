//! Faults of policies, one by one: what each costs, and how the policy comes back.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use switchtower_policy::{WorkerCandidate, WorkerFilter, WorkerInputView, WorkerPicker};

#[derive(Clone, Default)]
struct TestClock(Arc<AtomicU64>);

impl Clock for TestClock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

type Picks = Arc<dyn Fn(usize) -> Result<usize, WorkerSelectionPolicyError> + Send + Sync>;

struct Scripted(Picks);

impl WorkerPicker for Scripted {
    fn pick(
        &mut self,
        _: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        (self.0)(input.candidates().len())
    }
}

fn scripted(picks: Picks) -> impl WorkerSelectionPolicyFactory {
    move |config: &KvRouterConfig, label: &'static str, _: RoutingPartitionRef<'_>| {
        WorkerSelectionPolicy::new(config.clone(), label, Vec::new(), Box::new(Scripted(Arc::clone(&picks))))
    }
}

struct Setup {
    host: PolicyHost,
    clock: TestClock,
}

impl Setup {
    fn new(factory: impl WorkerSelectionPolicyFactory) -> Self {
        let clock = TestClock::default();
        let config =
            KvRouterConfig { quarantine_after_failures: 3, quarantine_ms: 100, ..KvRouterConfig::default() };
        let parts = PolicyParts {
            config: Arc::new(config),
            partition: PartitionId::aggregated("m"),
            factory: Arc::new(factory),
            fallback: Arc::new(scripted(Arc::new(|rows| Ok(rows - 1)))),
            clock: Box::new(clock.clone()),
        };
        Self { host: PolicyHost::new(parts), clock }
    }

    /// The same with another fallback, as an extended catalogue may have.
    fn falling_back_on(mut self, fallback: impl WorkerSelectionPolicyFactory) -> Self {
        self.host.fallback_factory = Arc::new(fallback);
        self.host.rebuild_fallback();
        self
    }

    fn picking(
        picks: impl Fn(usize) -> Result<usize, WorkerSelectionPolicyError> + Send + Sync + 'static,
    ) -> Self {
        Self::new(scripted(Arc::new(picks)))
    }

    /// Chooses among workers 0, 1 and 2 at `now_ms`.
    fn choose(&mut self, now_ms: u64) -> Result<(u64, ChosenBy), WorkerSelectionPolicyError> {
        self.clock.0.fetch_max(now_ms * 1_000, Ordering::Relaxed);
        self.host.prepare(now_ms);
        let context = host::ContextBuilder::new(10, 16).build();
        let rows: Vec<_> = (0..3).map(|worker| host::candidate(worker, 0)).collect();
        let choice = self.host.choose(now_ms, &context, &Rows::from(rows.as_slice()).columns())?;
        assert_eq!(rows.get(choice.pick.row).map(WorkerCandidate::worker_id), Some(choice.pick.worker_id));
        Ok((choice.pick.worker_id, choice.chosen_by))
    }

    fn failures(&self, label: &str) -> u64 {
        let failures = &self.host.health().failures;
        failures.iter().find(|(name, _)| *name == label).map_or(0, |(_, count)| *count)
    }
}

#[test]
fn a_healthy_policy_chooses() {
    let mut setup = Setup::picking(|_| Ok(1));
    assert_eq!(setup.choose(0), Ok((1, ChosenBy::Policy)));
    assert_eq!(setup.host.health(), &PolicyHealth::default());
}

#[test]
fn b83_an_error_and_a_bad_row_cost_one_request_its_choice() {
    let calls = AtomicUsize::new(0);
    let mut setup = Setup::picking(move |rows| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => Err(WorkerSelectionPolicyError::failed("lost my notes")),
        2 => Ok(rows),
        _ => Ok(0),
    });
    let answers: Vec<_> = (0..4).map(|_| setup.choose(0).unwrap()).collect();
    let fallback = |label| (2, ChosenBy::Fallback(label));
    assert_eq!(
        answers,
        [fallback("error"), (0, ChosenBy::Policy), fallback("invalid_row"), (0, ChosenBy::Policy)]
    );
    assert_eq!((setup.failures("error"), setup.failures("invalid_row")), (1, 1));
}

#[test]
fn b83_a_panic_drops_the_torn_state_and_the_policy_is_built_anew() {
    let built = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&built);
    let first = AtomicBool::new(true);
    let picks: Picks = Arc::new(move |_| {
        assert!(!first.swap(false, Ordering::Relaxed), "panics once");
        Ok(0)
    });
    let mut setup = Setup::new(
        move |config: &KvRouterConfig, label: &'static str, partition: RoutingPartitionRef<'_>| {
            count.fetch_add(1, Ordering::Relaxed);
            scripted(Arc::clone(&picks)).build(config, label, partition)
        },
    );
    assert_eq!(setup.choose(0), Ok((2, ChosenBy::Fallback("panic"))));
    assert_eq!(setup.choose(0), Ok((0, ChosenBy::Policy)));
    assert_eq!(built.load(Ordering::Relaxed), 2);
}

#[test]
fn b83_repeated_failures_quarantine_the_policy_longer_each_time() {
    let mut setup = Setup::picking(|_| panic!("always"));
    for _ in 0..3 {
        assert_eq!(setup.choose(0), Ok((2, ChosenBy::Fallback("panic"))));
    }
    assert!(setup.host.health().quarantined);
    assert_eq!(setup.choose(99), Ok((2, ChosenBy::Fallback("quarantined"))));
    for _ in 0..3 {
        assert_eq!(setup.choose(100), Ok((2, ChosenBy::Fallback("panic"))));
    }
    assert_eq!(setup.choose(299), Ok((2, ChosenBy::Fallback("quarantined"))), "the second one lasts 200 ms");
    assert_eq!(setup.choose(300), Ok((2, ChosenBy::Fallback("panic"))));
    assert_eq!((setup.failures("panic"), setup.host.health().quarantines), (7, 2));
}

#[test]
fn one_good_choice_ends_the_row_of_failures() {
    let calls = AtomicUsize::new(0);
    let mut setup = Setup::picking(move |_| {
        if calls.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            Ok(0)
        } else {
            Err(WorkerSelectionPolicyError::failed("x"))
        }
    });
    for _ in 0..9 {
        setup.choose(0).unwrap();
    }
    assert_eq!((setup.failures("error"), setup.host.health().quarantines), (6, 0));
}

#[test]
fn a_factory_that_panics_is_a_failure_like_any_other() {
    let broken = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&broken);
    let mut setup = Setup::new(
        move |config: &KvRouterConfig, label: &'static str, partition: RoutingPartitionRef<'_>| {
            assert!(!seen.load(Ordering::Relaxed), "the factory panics");
            scripted(Arc::new(|_| Ok(0))).build(config, label, partition)
        },
    );
    assert_eq!(setup.choose(0), Ok((2, ChosenBy::Fallback("quarantined"))));
    broken.store(false, Ordering::Relaxed);
    assert_eq!(setup.choose(100), Ok((0, ChosenBy::Policy)));
    assert_eq!(setup.failures("factory_panic"), 1);
}

#[test]
fn a_slow_policy_is_used_and_counted() {
    let clock = TestClock::default();
    let slow = clock.clone();
    let mut setup = Setup::picking(move |_| {
        slow.0.fetch_add(2_000_000, Ordering::Relaxed);
        Ok(1)
    });
    setup.host.clock = Box::new(clock);
    assert_eq!(setup.choose(0), Ok((1, ChosenBy::Policy)));
    assert_eq!(setup.failures("over_budget"), 1);
}

/// Keeps only the rows that the closure says.
struct Keep(Box<dyn FnMut(u64) -> bool + Send>);

impl WorkerFilter for Keep {
    fn keep(
        &mut self,
        _: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<bool, WorkerSelectionPolicyError> {
        Ok((self.0)(candidate.worker_id()))
    }
}

fn filtering(keep: fn(u64) -> bool, picks: fn(usize) -> usize) -> Setup {
    Setup::new(move |config: &KvRouterConfig, label: &'static str, partition: RoutingPartitionRef<'_>| {
        let policy = scripted(Arc::new(move |rows| Ok(picks(rows)))).build(config, label, partition);
        policy.with_filters(vec![Box::new(Keep(Box::new(keep)))])
    })
}

#[test]
fn b90_a_filter_that_drops_all_is_not_a_failure_and_no_fallback_steps_in() {
    let mut setup = filtering(|_| false, |_| 0);
    for _ in 0..5 {
        assert_eq!(setup.choose(0), Err(WorkerSelectionPolicyError::AllFiltered { candidates: 3 }));
    }
    assert_eq!(setup.host.health(), &PolicyHealth::default());
}

#[test]
fn the_fallback_chooses_among_the_rows_that_the_filters_left() {
    let mut setup = filtering(|worker| worker < 2, |_| panic!("in the picker"));
    assert_eq!(setup.choose(0), Ok((1, ChosenBy::Fallback("panic"))));
}

#[test]
fn a_filter_that_panics_leaves_the_fallback_every_row() {
    let mut setup = filtering(
        |worker| {
            if worker == 1 { panic!("in the filter") } else { false }
        },
        |_| 0,
    );
    assert_eq!(setup.choose(0), Ok((2, ChosenBy::Fallback("panic"))));
}

#[test]
fn b83_a_fallback_that_panics_too_still_costs_nobody_the_scheduler() {
    let mut setup = Setup::picking(|_| panic!("the policy"))
        .falling_back_on(scripted(Arc::new(|_| panic!("and the fallback"))));
    for _ in 0..3 {
        assert_eq!(setup.choose(0), Ok((0, ChosenBy::Fallback("panic"))), "the first row serves");
    }
    assert_eq!(setup.choose(0), Ok((0, ChosenBy::Fallback("quarantined"))));
    assert_eq!((setup.failures("panic"), setup.failures("fallback")), (3, 4));
    let broken = |_: &KvRouterConfig, _: &'static str, _: RoutingPartitionRef<'_>| -> WorkerSelectionPolicy {
        panic!("in its factory")
    };
    let mut setup = Setup::picking(|_| Err(WorkerSelectionPolicyError::failed("x"))).falling_back_on(broken);
    assert_eq!(setup.choose(0), Ok((0, ChosenBy::Fallback("error"))));
}

#[test]
fn b90_a_part_that_claims_the_hosts_outcome_has_failed_and_the_fallback_serves() {
    let mut setup = Setup::picking(|rows| Err(WorkerSelectionPolicyError::AllFiltered { candidates: rows }));
    assert_eq!(setup.choose(0), Ok((2, ChosenBy::Fallback("error"))));
    assert_eq!(setup.failures("error"), 1);
}

/// A picker that panics when it picks and when it is dropped, with a payload that does the same.
struct Bomb;

struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("the payload's drop");
    }
}

impl WorkerPicker for Bomb {
    fn pick(
        &mut self,
        _: &WorkerSelectionContext<'_>,
        _: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        std::panic::panic_any(Payload)
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the policy's drop");
    }
}

fn bombs(config: &KvRouterConfig, label: &'static str, _: RoutingPartitionRef<'_>) -> WorkerSelectionPolicy {
    WorkerSelectionPolicy::new(config.clone(), label, Vec::new(), Box::new(Bomb))
}

#[test]
fn b83_panics_in_drops_are_contained_when_the_policy_fails_and_when_the_host_ends() {
    let mut setup = Setup::new(bombs);
    for _ in 0..3 {
        assert_eq!(setup.choose(0), Ok((2, ChosenBy::Fallback("panic"))));
    }
    drop(setup);
    drop(Setup::new(bombs));
}

#[test]
fn b83_a_policys_own_words_are_bounded() {
    let mut setup = Setup::picking(|_| Err(WorkerSelectionPolicyError::failed("é".repeat(1_000_000))));
    setup.choose(0).unwrap();
    let kept = setup.host.health().last_failure.as_ref().unwrap().message.chars().count();
    assert_eq!(kept, MESSAGE_CHARS_MAX);
}
