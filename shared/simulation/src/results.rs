//! The figures of one policy: what a report shows, under the names that its JSON has.

use crate::{Record, Served, trace::Trace};
use serde::Serialize;

/// One policy on one trace. Ratios are of tokens; what cannot be divided is `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyResult {
    /// The policy's name.
    pub policy: String,
    /// Requests of the trace.
    pub requests: u64,
    /// Their prompt tokens.
    pub input_tokens: u64,
    /// Prompt tokens that engines found in their caches at prefill.
    pub hit_tokens: u64,
    /// Hit tokens ÷ input tokens.
    pub hit_ratio: f64,
    /// The same for one infinite cache in trace order: [`Trace::oracle_hits`].
    pub oracle_hit_ratio: f64,
    /// Hit ratio ÷ oracle's hit ratio.
    pub hit_of_oracle: Option<f64>,
    /// Uncached prefill tokens per row: the largest number ÷ the mean.
    pub imbalance: Option<f64>,
    /// Arrival to first token.
    pub ttft_ms: Distribution,
    /// Arrival to last token.
    pub e2e_ms: Distribution,
    /// Arrival to booking.
    pub queue_wait_ms: Distribution,
    /// Requests without an answer: rejected by the router, or by the engine that they do not fit.
    pub rejected: u64,
}

/// Times of the requests that were served, in milliseconds. `null` if none were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// The arithmetic mean.
    pub mean: Option<f64>,
    /// The smallest time that at least half of them do not exceed.
    pub p50: Option<f64>,
    /// The same for 90 of 100.
    pub p90: Option<f64>,
    /// The same for 99 of 100.
    pub p99: Option<f64>,
}

impl Distribution {
    /// Of times in microseconds, in any order.
    #[must_use]
    pub fn of_us(mut times_us: Vec<u64>) -> Self {
        times_us.sort_unstable();
        let percentile = |percent: usize| {
            let rank = (times_us.len() * percent).div_ceil(100).max(1);
            times_us.get(rank - 1).map(|us| *us as f64 / 1_000.0)
        };
        let sum: u128 = times_us.iter().copied().map(u128::from).sum();
        let mean = (!times_us.is_empty()).then(|| sum as f64 / times_us.len() as f64 / 1_000.0);
        Self { mean, p50: percentile(50), p90: percentile(90), p99: percentile(99) }
    }
}

impl PolicyResult {
    /// The figures of `policy` from what became of each request of `trace` on `rows` rows.
    pub(crate) fn new(policy: &str, trace: &Trace, rows: u32, records: &[Record]) -> Self {
        let served: Vec<Served> = records.iter().filter_map(served).collect();
        let times = |time: fn(&Served) -> u64| Distribution::of_us(served.iter().map(time).collect());
        let input_tokens = trace.input_tokens();
        let hit_tokens: u64 = served.iter().map(|served| u64::from(served.cached_tokens)).sum();
        let oracle_tokens: u64 = trace.oracle_hits().into_iter().map(u64::from).sum();
        Self {
            policy: policy.to_owned(),
            requests: records.len() as u64,
            input_tokens,
            hit_tokens,
            hit_ratio: ratio(hit_tokens, input_tokens).unwrap_or(0.0),
            oracle_hit_ratio: ratio(oracle_tokens, input_tokens).unwrap_or(0.0),
            hit_of_oracle: ratio(hit_tokens, oracle_tokens),
            imbalance: imbalance(&uncached_tokens(trace, rows, records)),
            ttft_ms: times(|served| served.ttft_us),
            e2e_ms: times(|served| served.e2e_us),
            queue_wait_ms: times(|served| served.queue_wait_us),
            rejected: (records.len() - served.len()) as u64,
        }
    }
}

fn served(record: &Record) -> Option<Served> {
    match record {
        Record::Served(served) => Some(*served),
        Record::Rejected(_) => None,
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Prompt tokens that each row had to compute.
fn uncached_tokens(trace: &Trace, rows: u32, records: &[Record]) -> Vec<u64> {
    let mut tokens = vec![0; rows as usize];
    for (request, record) in trace.requests.iter().zip(records) {
        if let Some(served) = served(record)
            && let Some(row) = tokens.get_mut(served.place as usize)
        {
            *row += u64::from(request.prompt_tokens.saturating_sub(served.cached_tokens));
        }
    }
    tokens
}

fn imbalance(tokens: &[u64]) -> Option<f64> {
    let largest = tokens.iter().copied().max()?;
    let share = ratio(largest, tokens.iter().sum())?;
    Some(share * tokens.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ReadOptions;

    #[test]
    fn percentiles_are_times_that_occurred() {
        let distribution = Distribution::of_us((1..=200).rev().map(|ms| ms * 1_000).collect());
        assert_eq!(distribution.mean, Some(100.5));
        assert_eq!([distribution.p50, distribution.p90, distribution.p99], [100.0, 180.0, 198.0].map(Some));
        let one = Distribution::of_us(vec![1_500]);
        assert_eq!([one.mean, one.p50, one.p99], [Some(1.5); 3]);
        assert_eq!(Distribution::of_us(Vec::new()), Distribution::default());
    }

    #[test]
    fn figures_follow_from_the_records() {
        let text =
            "{\"timestamp\":0,\"input_length\":1024,\"output_length\":1,\"hash_ids\":[0,1]}\n".repeat(4);
        let trace = Trace::read(text.as_bytes(), ReadOptions::default()).unwrap();
        let served = |place, cached_tokens| {
            Record::Served(Served { place, cached_tokens, ttft_us: 2_000, ..Served::default() })
        };
        let records = [served(0, 0), served(1, 0), served(1, 512), Record::Rejected("queue_full")];
        let result = PolicyResult::new("p", &trace, 2, &records);
        assert_eq!((result.requests, result.rejected, result.hit_tokens), (4, 1, 512));
        assert_eq!((result.hit_ratio, result.oracle_hit_ratio), (0.125, 0.75));
        assert_eq!((result.hit_of_oracle, result.imbalance), (Some(512.0 / 3_072.0), Some(1.2)));
        assert_eq!(result.ttft_ms.p50, Some(2.0));
    }

    #[test]
    fn what_cannot_be_divided_is_null() {
        let text = "{\"timestamp\":0,\"input_length\":10,\"output_length\":1,\"hash_ids\":[0]}\n";
        let trace = Trace::read(text.as_bytes(), ReadOptions::default()).unwrap();
        let result = PolicyResult::new("p", &trace, 2, &[Record::Rejected("engine")]);
        assert_eq!((result.hit_of_oracle, result.imbalance, result.ttft_ms.mean), (None, None, None));
    }
}
