//! Runs a policy over rows and refuses what breaks the contract.

use crate::{
    ScoredWorkerCandidate, WorkerCacheInput, WorkerCandidate, WorkerInputView, WorkerInputs, WorkerLoadInput,
    WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

/// Buffers that an evaluation reuses, so that a decision allocates nothing once they have grown.
#[derive(Debug, Default)]
pub struct Scratch {
    contributions: Vec<f64>,
    scored: Vec<ScoredWorkerCandidate>,
    cache: Vec<WorkerCacheInput>,
    load: Vec<WorkerLoadInput>,
    multipliers: Vec<f64>,
}

impl Scratch {
    /// The rows that the last evaluation scored, with their costs.
    #[must_use]
    pub fn scored(&self) -> &[ScoredWorkerCandidate] {
        &self.scored
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
/// `rows` loses the rows that filters dropped.
///
/// # Errors
/// What the policy returned, or what was wrong with it.
pub fn evaluate(
    policy: &mut WorkerSelectionPolicy,
    context: &WorkerSelectionContext<'_>,
    rows: &mut Vec<WorkerCandidate>,
    scratch: &mut Scratch,
) -> Result<Pick, WorkerSelectionPolicyError> {
    filter(policy, context, rows)?;
    choose(policy, context, rows, scratch)
}

/// The second half of [`evaluate`]: scorers and picker over the rows that [`filter`] left, which are not empty.
///
/// # Errors
/// What the policy returned, or what was wrong with it.
pub fn choose(
    policy: &mut WorkerSelectionPolicy,
    context: &WorkerSelectionContext<'_>,
    rows: &mut [WorkerCandidate],
    scratch: &mut Scratch,
) -> Result<Pick, WorkerSelectionPolicyError> {
    score(policy, context, rows, scratch)?;
    let chosen = pick(policy, context, rows, scratch)?;
    let candidate = rows.get(chosen).zip(scratch.scored.get(chosen));
    let (row, scored) =
        candidate.ok_or(WorkerSelectionPolicyError::InvalidRow { row: chosen, candidates: rows.len() })?;
    Ok(Pick { row: chosen, worker_id: row.worker.worker_id, dp_rank: row.worker.dp_rank, cost: scored.cost })
}

/// The first half of [`evaluate`]: drops the rows that the policy's filters do not keep.
///
/// # Errors
/// What a filter returned, or [`WorkerSelectionPolicyError::AllFiltered`].
pub fn filter(
    policy: &mut WorkerSelectionPolicy,
    context: &WorkerSelectionContext<'_>,
    rows: &mut Vec<WorkerCandidate>,
) -> Result<(), WorkerSelectionPolicyError> {
    let before = rows.len();
    for (inputs, filter) in &mut policy.filters {
        show(rows, *inputs);
        let mut failure = None;
        rows.retain(|row| match filter.keep(context, row) {
            Ok(keep) => keep,
            Err(error) => {
                failure.get_or_insert(error);
                true
            }
        });
        if let Some(error) = failure {
            return Err(of_a_part(error));
        }
    }
    if rows.is_empty() { Err(WorkerSelectionPolicyError::AllFiltered { candidates: before }) } else { Ok(()) }
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

/// Lets the next component see `inputs` and no more.
fn show(rows: &mut [WorkerCandidate], inputs: WorkerInputs) {
    if rows.first().is_some_and(|row| row.visible != inputs) {
        rows.iter_mut().for_each(|row| row.visible = inputs);
    }
}

fn score(
    policy: &mut WorkerSelectionPolicy,
    context: &WorkerSelectionContext<'_>,
    rows: &mut [WorkerCandidate],
    scratch: &mut Scratch,
) -> Result<(), WorkerSelectionPolicyError> {
    scratch.scored.clear();
    scratch.scored.extend(rows.iter().map(|row| ScoredWorkerCandidate { worker: row.worker, cost: 0.0 }));
    for (index, (inputs, scorer)) in policy.scorers.iter_mut().enumerate() {
        show(rows, *inputs);
        scratch.contributions.clear();
        scratch.contributions.resize(rows.len(), f64::NAN);
        scorer.score_batch(context, rows, &mut scratch.contributions).map_err(of_a_part)?;
        accumulate(index, &scratch.contributions, &mut scratch.scored)?;
    }
    Ok(())
}

fn accumulate(
    scorer: usize,
    contributions: &[f64],
    scored: &mut [ScoredWorkerCandidate],
) -> Result<(), WorkerSelectionPolicyError> {
    for (row, (&value, scored)) in contributions.iter().zip(scored).enumerate() {
        if !value.is_finite() {
            return Err(WorkerSelectionPolicyError::NonFiniteContribution { scorer, row, value });
        }
        scored.cost += value;
        if !scored.cost.is_finite() {
            return Err(WorkerSelectionPolicyError::NonFiniteCost { row, value: scored.cost });
        }
    }
    Ok(())
}

fn pick(
    policy: &mut WorkerSelectionPolicy,
    context: &WorkerSelectionContext<'_>,
    rows: &[WorkerCandidate],
    scratch: &mut Scratch,
) -> Result<usize, WorkerSelectionPolicyError> {
    let (inputs, picker) = &mut policy.picker;
    let Scratch { scored, cache, load, multipliers, .. } = scratch;
    let view = WorkerInputView {
        candidates: scored,
        cache: column(*inputs, WorkerInputs::CACHE, cache, rows.iter().map(|row| row.cache)),
        load: column(*inputs, WorkerInputs::LOAD, load, rows.iter().map(|row| row.load)),
        preferred_taint_multiplier: column(
            *inputs,
            WorkerInputs::ROUTING,
            multipliers,
            rows.iter().map(|row| row.preferred_taint_multiplier),
        ),
    };
    picker.pick(context, view).map_err(of_a_part)
}

fn column<T>(
    asked: WorkerInputs,
    group: WorkerInputs,
    buffer: &mut Vec<T>,
    values: impl Iterator<Item = T>,
) -> Option<&[T]> {
    if !asked.contains(group) {
        return None;
    }
    buffer.clear();
    buffer.extend(values);
    Some(buffer)
}
