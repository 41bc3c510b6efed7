//! Reads the signals that a scorer asked for, and keeps costs finite. For the scorers of this crate; decides nothing.

use switchtower_policy::{
    CacheColumns, CandidateColumns, Column, LoadColumns, WorkerCacheInput, WorkerCandidate, WorkerLoadInput,
    WorkerSelectionPolicyError,
};

/// All rows' booked load.
pub(crate) fn loads<'a>(
    rows: &'a CandidateColumns<'_>,
) -> Result<&'a LoadColumns<'a>, WorkerSelectionPolicyError> {
    rows.load().ok_or_else(|| unavailable("load"))
}

/// All rows' overlap with the prompt.
pub(crate) fn caches<'a>(
    rows: &'a CandidateColumns<'_>,
) -> Result<&'a CacheColumns<'a>, WorkerSelectionPolicyError> {
    rows.cache().ok_or_else(|| unavailable("cache"))
}

/// All rows' preferred-taint multipliers.
pub(crate) fn multipliers<'a>(rows: &CandidateColumns<'a>) -> Result<Column<'a>, WorkerSelectionPolicyError> {
    rows.preferred_taint_multiplier().ok_or_else(|| unavailable("routing"))
}

/// The row's booked load.
#[inline]
pub(crate) fn load(candidate: &WorkerCandidate) -> Result<&WorkerLoadInput, WorkerSelectionPolicyError> {
    candidate.load().ok_or_else(|| unavailable("load"))
}

/// The row's overlap with the prompt.
#[inline]
pub(crate) fn cache(candidate: &WorkerCandidate) -> Result<&WorkerCacheInput, WorkerSelectionPolicyError> {
    candidate.cache().ok_or_else(|| unavailable("cache"))
}

/// `cost` of the row, less if the row has taints that the request prefers. Finite for every `cost` that is a number:
/// the host refuses infinite costs, and a row that is loaded beyond all measure is merely the last choice.
#[inline]
pub(crate) fn preferred(candidate: &WorkerCandidate, cost: f64) -> Result<f64, WorkerSelectionPolicyError> {
    let multiplier = candidate.preferred_taint_multiplier().ok_or_else(|| unavailable("routing"))?;
    Ok(multiplied(cost, multiplier))
}

/// See [`preferred`].
#[inline]
pub(crate) fn multiplied(cost: f64, multiplier: f64) -> f64 {
    (cost * multiplier).clamp(-f64::MAX, f64::MAX)
}

/// Every cost as [`preferred`] leaves it.
pub(crate) fn multiply(costs: &mut [f64], multipliers: Column<'_>) {
    match multipliers {
        Column::Same(multiplier) => costs.iter_mut().for_each(|cost| *cost = multiplied(*cost, multiplier)),
        Column::Each(each) => {
            costs.iter_mut().zip(each).for_each(|(cost, multiplier)| *cost = multiplied(*cost, *multiplier));
        }
    }
}

/// Only a scorer that does not ask for what it reads gets here.
#[cold]
fn unavailable(group: &str) -> WorkerSelectionPolicyError {
    WorkerSelectionPolicyError::failed(format!(
        "{group} inputs unavailable: add the group to required_worker_inputs()"
    ))
}
