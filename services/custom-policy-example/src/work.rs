//! What a request costs on a row: the backlog it waits for, and the delay that its uncached tokens put on everybody
//! behind it. Knows no sessions. The policy's only scorer.

use switchtower_policy::{
    CandidateColumns, WorkerCandidate, WorkerInputs, WorkerScorer, WorkerSelectionContext,
    WorkerSelectionPolicyError,
};

/// How many times `busy_backlog_tokens` the mean backlog may weigh.
const BUSY_MAX: f64 = 8.0;

/// Cost in tokens: v + w × u, with
///
/// - v the row's prefill backlog,
/// - u the prompt's tokens that the row does not hold; at least 1, since an engine always computes the last one,
/// - w = 2 + min(8, mean of v over the rows ÷ `busy_backlog_tokens`)²: one for the request's own wait, one for the
///   others', and more when long queues form behind it. The bound keeps the row's own backlog in the sum.
///
/// The row's preferred-taint multiplier applies to the whole.
pub(crate) struct DelayScorer {
    pub(crate) busy_backlog_tokens: f64,
}

impl DelayScorer {
    fn weight(&self, mean_backlog_tokens: f64) -> f64 {
        2.0 + (mean_backlog_tokens / self.busy_backlog_tokens).min(BUSY_MAX).powi(2)
    }
}

impl WorkerScorer for DelayScorer {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::CACHE | WorkerInputs::LOAD | WorkerInputs::ROUTING
    }

    /// One row by itself is all there is to take a mean of.
    fn score(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        let weight = self.weight(backlog_tokens(candidate)?);
        cost(context, candidate, weight)
    }

    fn score_batch(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        rows: &CandidateColumns<'_>,
        costs: &mut [f64],
    ) -> Result<(), WorkerSelectionPolicyError> {
        let load = rows.load().ok_or_else(|| unavailable("load"))?;
        let sum: f64 = load.active_prefill_tokens.iter().map(|tokens| *tokens as f64).sum();
        let weight = self.weight(sum / rows.len().max(1) as f64);
        for (candidate, place) in rows.iter().zip(costs) {
            *place = cost(context, &candidate, weight)?;
        }
        Ok(())
    }
}

fn cost(
    context: &WorkerSelectionContext<'_>,
    candidate: &WorkerCandidate,
    weight: f64,
) -> Result<f64, WorkerSelectionPolicyError> {
    let cache = candidate.cache().ok_or_else(|| unavailable("cache"))?;
    let multiplier = candidate.preferred_taint_multiplier().ok_or_else(|| unavailable("routing"))?;
    let cached_tokens = cache.effective() * f64::from(context.block_size());
    let uncached_tokens = (context.prompt_tokens() as f64 - cached_tokens).max(1.0);
    Ok((backlog_tokens(candidate)? + weight * uncached_tokens) * multiplier)
}

fn backlog_tokens(candidate: &WorkerCandidate) -> Result<f64, WorkerSelectionPolicyError> {
    let load = candidate.load().ok_or_else(|| unavailable("load"))?;
    Ok(load.active_prefill_tokens() as f64)
}

/// The host shows a scorer what it asked for, so this is a mistake in `required_worker_inputs`. An error, not a panic:
/// the fallback policy then serves the request.
fn unavailable(group: &str) -> WorkerSelectionPolicyError {
    WorkerSelectionPolicyError::failed(format!("{group} inputs unavailable"))
}
