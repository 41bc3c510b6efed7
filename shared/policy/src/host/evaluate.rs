//! Runs a policy over rows and refuses what breaks the contract.

use super::Rows;
use crate::{
    CandidateColumns, ScoredWorkerCandidate, WorkerCacheInput, WorkerCandidate, WorkerInputView,
    WorkerLoadInput, WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError,
    view::ScoredRows,
};

/// Buffers that an evaluation reuses, so that a decision allocates nothing once they have grown.
#[derive(Debug, Default)]
pub struct Scratch {
    costs: Vec<f64>,
    contributions: Vec<f64>,
    scored: Vec<ScoredWorkerCandidate>,
    cache: Vec<WorkerCacheInput>,
    load: Vec<WorkerLoadInput>,
    multipliers: Vec<f64>,
}

impl Scratch {
    /// What the rows of the last evaluation cost.
    #[must_use]
    pub fn costs(&self) -> &[f64] {
        &self.costs
    }
}

/// A validated choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    /// Its position among the rows that were scored: those that the filters left.
    pub row: usize,
    /// The worker chosen.
    pub worker_id: u64,
    /// The rank chosen.
    pub dp_rank: u32,
    /// What it cost.
    pub cost: f64,
}

/// Runs filters, scorers and picker over `rows` and validates: finite contributions, finite sums, index in range.
/// `rows` loses the rows that filters dropped. For a policy's tests; the scheduler has columns.
///
/// # Errors
/// What the policy returned, or what was wrong with it.
pub fn evaluate(
    policy: &mut WorkerSelectionPolicy,
    context: &WorkerSelectionContext<'_>,
    rows: &mut Vec<WorkerCandidate>,
    scratch: &mut Scratch,
) -> Result<Pick, WorkerSelectionPolicyError> {
    let mut kept = Vec::new();
    filter(policy, context, &Rows::from(rows.as_slice()).columns(), &mut kept)?;
    *rows = kept.into_iter().map(|row| rows[row]).collect();
    choose(policy, context, &Rows::from(rows.as_slice()).columns(), scratch)
}

/// The second half of [`evaluate`]: scorers and picker over the rows that [`filter`] left, which are not empty.
///
/// # Errors
/// What the policy returned, or what was wrong with it.
pub fn choose(
    policy: &mut WorkerSelectionPolicy,
    context: &WorkerSelectionContext<'_>,
    rows: &CandidateColumns<'_>,
    scratch: &mut Scratch,
) -> Result<Pick, WorkerSelectionPolicyError> {
    score(policy, context, rows, scratch)?;
    let row = pick(policy, context, rows, scratch)?;
    let (worker, cost) = rows
        .workers
        .get(row)
        .zip(scratch.costs.get(row))
        .ok_or(WorkerSelectionPolicyError::InvalidRow { row, candidates: rows.len() })?;
    Ok(Pick { row, worker_id: worker.worker_id, dp_rank: worker.dp_rank, cost: *cost })
}

/// The first half of [`evaluate`]: writes into `kept` the positions of the rows that the policy's filters keep.
///
/// # Errors
/// What a filter returned, or [`WorkerSelectionPolicyError::AllFiltered`].
pub fn filter(
    policy: &mut WorkerSelectionPolicy,
    context: &WorkerSelectionContext<'_>,
    rows: &CandidateColumns<'_>,
    kept: &mut Vec<usize>,
) -> Result<(), WorkerSelectionPolicyError> {
    kept.clear();
    kept.extend(0..rows.len());
    for (inputs, filter) in &mut policy.filters {
        let rows = rows.show(*inputs);
        let mut failure = None;
        kept.retain(|row| {
            failure.is_some()
                || filter.keep(context, &rows.candidate(*row)).unwrap_or_else(|error| {
                    failure = Some(error);
                    true
                })
        });
        if let Some(error) = failure {
            return Err(of_a_part(error));
        }
    }
    let candidates = rows.len();
    if kept.is_empty() { Err(WorkerSelectionPolicyError::AllFiltered { candidates }) } else { Ok(()) }
}

/// That all rows were filtered is the host's to say: it rejects the request. From a part it is a failure like any other,
/// which the fallback serves.
fn of_a_part(error: WorkerSelectionPolicyError) -> WorkerSelectionPolicyError {
    match error {
        WorkerSelectionPolicyError::AllFiltered { .. } => {
            WorkerSelectionPolicyError::Failed(error.to_string())
        }
        other => other,
    }
}

/// Sums up the scorers' contributions. The first scorer's are where the sums will be.
fn score(
    policy: &mut WorkerSelectionPolicy,
    context: &WorkerSelectionContext<'_>,
    rows: &CandidateColumns<'_>,
    scratch: &mut Scratch,
) -> Result<(), WorkerSelectionPolicyError> {
    let Scratch { costs, contributions, .. } = scratch;
    let mut scorers = policy.scorers.iter_mut();
    let Some((inputs, first)) = scorers.next() else {
        fill(costs, rows.len(), 0.0);
        return Ok(());
    };
    fill(costs, rows.len(), f64::NAN);
    first.score_batch(context, &rows.show(*inputs), costs).map_err(of_a_part)?;
    accept_first(costs)?;
    for (index, (inputs, scorer)) in (1..).zip(scorers) {
        fill(contributions, rows.len(), f64::NAN);
        scorer.score_batch(context, &rows.show(*inputs), contributions).map_err(of_a_part)?;
        accumulate(index, contributions, costs)?;
    }
    Ok(())
}

fn fill(column: &mut Vec<f64>, rows: usize, value: f64) {
    column.resize(rows, value);
    column.fill(value);
}

/// The sums after one scorer. Zero is added as any other contribution is to any other sum: it makes −0 a 0.
fn accept_first(costs: &mut [f64]) -> Result<(), WorkerSelectionPolicyError> {
    let mut are_finite = true;
    for cost in costs.iter_mut() {
        *cost += 0.0;
        are_finite &= is_finite(*cost);
    }
    if are_finite { Ok(()) } else { Err(not_finite(0, costs, costs)) }
}

/// Adds another scorer's contributions. A sum cannot be finite with a contribution that is not, so only sums are checked.
fn accumulate(
    scorer: usize,
    contributions: &[f64],
    costs: &mut [f64],
) -> Result<(), WorkerSelectionPolicyError> {
    let mut are_finite = true;
    for (cost, contribution) in costs.iter_mut().zip(contributions) {
        *cost += contribution;
        are_finite &= is_finite(*cost);
    }
    if are_finite { Ok(()) } else { Err(not_finite(scorer, contributions, costs)) }
}

/// As `f64::is_finite`, in one comparison.
#[inline(always)]
fn is_finite(cost: f64) -> bool {
    cost.abs() <= f64::MAX
}

/// What is wrong with the first row whose sum is not finite; one of them is not.
#[cold]
fn not_finite(scorer: usize, contributions: &[f64], costs: &[f64]) -> WorkerSelectionPolicyError {
    let row = costs.iter().position(|cost| !cost.is_finite()).unwrap_or(0);
    let at = |column: &[f64]| column.get(row).copied().unwrap_or(f64::NAN);
    let value = at(contributions);
    if value.is_finite() {
        WorkerSelectionPolicyError::NonFiniteCost { row, value: at(costs) }
    } else {
        WorkerSelectionPolicyError::NonFiniteContribution { scorer, row, value }
    }
}

fn pick(
    policy: &mut WorkerSelectionPolicy,
    context: &WorkerSelectionContext<'_>,
    rows: &CandidateColumns<'_>,
    scratch: &mut Scratch,
) -> Result<usize, WorkerSelectionPolicyError> {
    let (inputs, picker) = &mut policy.picker;
    let rows = rows.show(*inputs);
    let Scratch { costs, scored, cache, load, multipliers, .. } = scratch;
    let each = || 0..rows.len();
    let scored_rows = ScoredRows::new(rows.workers, costs, std::mem::take(scored));
    let view = WorkerInputView {
        scored: &scored_rows,
        cache: rows.cache().map(|columns| filled(cache, each().map(|row| columns.at(row)))),
        load: rows.load().map(|columns| filled(load, each().map(|row| columns.at(row)))),
        preferred_taint_multiplier: rows
            .preferred_taint_multiplier()
            .map(|column| filled(multipliers, each().map(|row| column.at(row)))),
    };
    let picked = picker.pick(context, view).map_err(of_a_part);
    *scored = scored_rows.into_buffer();
    picked
}

fn filled<T>(buffer: &mut Vec<T>, values: impl Iterator<Item = T>) -> &[T] {
    buffer.clear();
    buffer.extend(values);
    buffer
}
