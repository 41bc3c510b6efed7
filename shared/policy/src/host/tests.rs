//! The contract, component by component: what each may see, and what the host refuses.

use super::*;
use crate::{
    CandidateColumns, KvRouterConfig, WorkerCandidate, WorkerFilter, WorkerInputView, WorkerInputs,
    WorkerPicker, WorkerScorer, WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

type Outcome<T> = Result<T, WorkerSelectionPolicyError>;

struct Score<F>(WorkerInputs, F);

impl<F: FnMut(&WorkerCandidate) -> Outcome<f64> + Send + 'static> WorkerScorer for Score<F> {
    fn required_worker_inputs(&self) -> WorkerInputs {
        self.0
    }

    fn score(&mut self, _: &WorkerSelectionContext<'_>, candidate: &WorkerCandidate) -> Outcome<f64> {
        (self.1)(candidate)
    }
}

struct Choose<F>(WorkerInputs, F);

impl<F: FnMut(WorkerInputView<'_>) -> Outcome<usize> + Send + 'static> WorkerPicker for Choose<F> {
    fn required_worker_inputs(&self) -> WorkerInputs {
        self.0
    }

    fn pick(&mut self, _: &WorkerSelectionContext<'_>, input: WorkerInputView<'_>) -> Outcome<usize> {
        (self.1)(input)
    }
}

struct Keep<F>(F);

impl<F: FnMut(&WorkerCandidate) -> Outcome<bool> + Send + 'static> WorkerFilter for Keep<F> {
    fn keep(&mut self, _: &WorkerSelectionContext<'_>, candidate: &WorkerCandidate) -> Outcome<bool> {
        (self.0)(candidate)
    }
}

fn cheapest() -> Box<dyn WorkerPicker> {
    Box::new(Choose(WorkerInputs::NONE, |view: WorkerInputView<'_>| {
        let rows = view.candidates().iter().enumerate();
        let best = rows.min_by(|(_, a), (_, b)| a.cost().total_cmp(&b.cost()));
        best.map(|(row, _)| row).ok_or_else(|| WorkerSelectionPolicyError::failed("empty"))
    }))
}

fn policy(scorers: Vec<Box<dyn WorkerScorer>>, picker: Box<dyn WorkerPicker>) -> WorkerSelectionPolicy {
    WorkerSelectionPolicy::new(KvRouterConfig::default(), "aggregated", scorers, picker)
}

fn run(policy: &mut WorkerSelectionPolicy) -> Outcome<Pick> {
    let mut rows: Vec<_> =
        (0..4_u8).map(|id| candidate(u64::from(id), 0).with_load(load(f64::from(id), 1, 2.0, 3))).collect();
    evaluate(policy, &ContextBuilder::new(64, 16).build(), &mut rows, &mut Scratch::default())
}

#[test]
fn contributions_are_summed_and_the_pick_is_named() {
    let by_id = Score(WorkerInputs::NONE, |row: &WorkerCandidate| Ok(row.worker_id() as f64));
    let not_zero =
        Score(WorkerInputs::NONE, |row: &WorkerCandidate| Ok(if row.worker_id() == 0 { 9.0 } else { 0.0 }));
    let pick = run(&mut policy(vec![Box::new(by_id), Box::new(not_zero)], cheapest())).unwrap();
    assert_eq!(pick, Pick { row: 1, worker_id: 1, dp_rank: 0, cost: 1.0 });
}

#[test]
fn a_component_sees_only_the_groups_it_asked_for() {
    let blind = Score(WorkerInputs::NONE, |row: &WorkerCandidate| {
        assert!(row.load().is_none() && row.cache().is_none() && row.preferred_taint_multiplier().is_none());
        Ok(0.0)
    });
    let loaded = Score(WorkerInputs::LOAD, |row: &WorkerCandidate| {
        assert!(row.cache().is_none());
        row.load()
            .map(|load| -load.raw_prefill_blocks())
            .ok_or_else(|| WorkerSelectionPolicyError::failed("no load"))
    });
    let picker = Choose(WorkerInputs::ROUTING, |view: WorkerInputView<'_>| {
        assert!(view.load().is_none() && view.cache().is_none());
        assert_eq!(view.preferred_taint_multiplier().map(<[f64]>::len), Some(view.candidates().len()));
        Ok(3)
    });
    let mut policy = policy(vec![Box::new(loaded), Box::new(blind)], Box::new(picker));
    assert_eq!(policy.required_worker_inputs(), WorkerInputs::LOAD | WorkerInputs::ROUTING);
    assert_eq!(run(&mut policy).unwrap().cost, -3.0);
}

#[test]
fn b81_non_finite_contributions_and_sums_never_reach_the_picker() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let scorer = Score(WorkerInputs::NONE, move |row: &WorkerCandidate| {
            Ok(if row.worker_id() == 2 { bad } else { 0.0 })
        });
        let error = run(&mut policy(vec![Box::new(scorer)], never())).unwrap_err();
        assert!(
            matches!(error, WorkerSelectionPolicyError::NonFiniteContribution { scorer: 0, row: 2, .. }),
            "{error}"
        );
    }
    let huge = || -> Box<dyn WorkerScorer> {
        Box::new(Score(WorkerInputs::NONE, |_: &WorkerCandidate| Ok(f64::MAX)))
    };
    let error = run(&mut policy(vec![huge(), huge()], never())).unwrap_err();
    assert!(matches!(error, WorkerSelectionPolicyError::NonFiniteCost { row: 0, .. }), "{error}");
}

fn never() -> Box<dyn WorkerPicker> {
    Box::new(Choose(WorkerInputs::NONE, |_: WorkerInputView<'_>| -> Outcome<usize> {
        panic!("the picker ran")
    }))
}

#[test]
fn a_place_that_a_batch_scorer_leaves_alone_is_refused() {
    struct Lazy;
    impl WorkerScorer for Lazy {
        fn score(&mut self, _: &WorkerSelectionContext<'_>, _: &WorkerCandidate) -> Outcome<f64> {
            Ok(0.0)
        }
        fn score_batch(
            &mut self,
            _: &WorkerSelectionContext<'_>,
            _: &CandidateColumns<'_>,
            costs: &mut [f64],
        ) -> Outcome<()> {
            costs[0] = 1.0;
            Ok(())
        }
    }
    let error = run(&mut policy(vec![Box::new(Lazy)], never())).unwrap_err();
    assert!(matches!(error, WorkerSelectionPolicyError::NonFiniteContribution { row: 1, .. }), "{error}");
}

#[test]
fn a_row_out_of_range_is_refused() {
    let picker = Choose(WorkerInputs::NONE, |view: WorkerInputView<'_>| Ok(view.candidates().len()));
    let error = run(&mut policy(Vec::new(), Box::new(picker))).unwrap_err();
    assert_eq!(error, WorkerSelectionPolicyError::InvalidRow { row: 4, candidates: 4 });
}

#[test]
fn a_pick_after_filters_names_the_worker_that_was_left() {
    let odd = Keep(|row: &WorkerCandidate| Ok(row.worker_id() % 2 == 1));
    let not_one = Keep(|row: &WorkerCandidate| Ok(row.worker_id() != 1));
    let mut policy = policy(Vec::new(), cheapest()).with_filters(vec![Box::new(odd), Box::new(not_one)]);
    assert_eq!(run(&mut policy).unwrap().worker_id, 3);
}

#[test]
fn b90_filters_that_drop_every_row_are_their_own_outcome() {
    let none = Keep(|_: &WorkerCandidate| Ok(false));
    let mut policy = policy(Vec::new(), never()).with_filters(vec![Box::new(none)]);
    assert_eq!(run(&mut policy), Err(WorkerSelectionPolicyError::AllFiltered { candidates: 4 }));
}

#[test]
fn a_failing_filter_fails_the_policy_and_is_not_taken_for_a_no() {
    let broken =
        Keep(
            |row: &WorkerCandidate| {
                if row.worker_id() == 1 { Err(WorkerSelectionPolicyError::failed("lost")) } else { Ok(false) }
            },
        );
    let mut policy = policy(Vec::new(), never()).with_filters(vec![Box::new(broken)]);
    assert_eq!(run(&mut policy), Err(WorkerSelectionPolicyError::failed("lost")));
}

#[test]
fn b90_only_the_host_says_that_all_rows_were_filtered() {
    let claim = || WorkerSelectionPolicyError::AllFiltered { candidates: 4 };
    let scorer = Score(WorkerInputs::NONE, move |_: &WorkerCandidate| Err(claim()));
    let picker = Choose(WorkerInputs::NONE, move |_: WorkerInputView<'_>| Err(claim()));
    let filter = Keep(move |_: &WorkerCandidate| Err(claim()));
    for mut policy in [
        policy(vec![Box::new(scorer)], never()),
        policy(Vec::new(), Box::new(picker)),
        policy(Vec::new(), never()).with_filters(vec![Box::new(filter)]),
    ] {
        let error = run(&mut policy).unwrap_err();
        assert!(matches!(error, WorkerSelectionPolicyError::Failed(_)), "{error}: the fallback has to serve");
    }
}

#[test]
fn required_inputs_are_read_once_so_a_part_that_changes_its_mind_sees_what_it_first_asked_for() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    struct Fickle(AtomicUsize);
    impl WorkerScorer for Fickle {
        fn required_worker_inputs(&self) -> WorkerInputs {
            let asked_before = self.0.fetch_add(1, Ordering::Relaxed);
            if asked_before == 0 { WorkerInputs::LOAD } else { WorkerInputs::CACHE }
        }
        fn score(&mut self, _: &WorkerSelectionContext<'_>, row: &WorkerCandidate) -> Outcome<f64> {
            assert!(row.load().is_some() && row.cache().is_none());
            Ok(0.0)
        }
    }
    let mut policy = policy(vec![Box::new(Fickle(AtomicUsize::new(0)))], cheapest());
    assert_eq!(policy.required_worker_inputs(), WorkerInputs::LOAD);
    for _ in 0..3 {
        run(&mut policy).unwrap();
        assert_eq!(policy.required_worker_inputs(), WorkerInputs::LOAD);
    }
}
