//! Reads the signals that a scorer asked for, and keeps costs finite. For the scorers of this crate; decides nothing.

use switchtower_policy::{WorkerCacheInput, WorkerCandidate, WorkerLoadInput, WorkerSelectionPolicyError};

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
    Ok((cost * multiplier).clamp(-f64::MAX, f64::MAX))
}

/// Only a scorer that does not ask for what it reads gets here.
#[cold]
fn unavailable(group: &str) -> WorkerSelectionPolicyError {
    WorkerSelectionPolicyError::failed(format!(
        "{group} inputs unavailable: add the group to required_worker_inputs()"
    ))
}
