//! The invariants of the design over random histories.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Submit { blocks: u64, pin: Option<u64>, deadline_ms: Option<u64> },
    Inhibit(u64),
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
        1 => (1..5_u64).prop_map(Step::Inhibit),
    ]
}

/// What became of each request: `None` while it waits.
type Log1 = Vec<(u64, Option<Result<Row, Outcome>>)>;

/// Whoever still waits after a dispatch would still wait if every waiter were looked at.
fn assert_no_wake_up_was_lost(setup: &mut Setup, now_ms: u64) {
    assert!(!setup.scheduler.needs_dispatch(now_ms));
    setup.scheduler.news.anything();
    assert_eq!(setup.dispatch(now_ms), [], "b62: no news, no answer");
}

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
            Step::Inhibit(worker) => {
                setup.scheduler.inhibit(WorkerId(worker), info(worker, 0).incarnation, now_ms + 30);
            }
        }
        let mut answers = Vec::new();
        setup.scheduler.dispatch(now_ms, &setup.index, &mut answers);
        answers.into_iter().for_each(&mut note);
        assert_no_wake_up_was_lost(&mut setup, now_ms);
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
