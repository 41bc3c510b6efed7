//! How loaded each row was over time: samples at even distances, as many as a chart can show.

use switchtower_ids::Row;

/// Beyond so many samples every second one is dropped, and they come half as often from then on.
const SAMPLES_MAX: usize = 240;

/// One row at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowSample {
    /// Requests in the engine, running and waiting.
    pub requests: u32,
    /// Prompt tokens that the engine has still to compute; what the cache will save a waiting one is not known yet.
    pub waiting_prefill_tokens: u64,
    /// Prompt tokens not found in the cache, of all requests whose first token is out.
    pub uncached_tokens: u64,
}

/// Samples of all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSeries {
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// Sample `n` was taken at `n` times this.
    pub interval_us: u64,
    /// For each moment, one sample per row.
    pub samples: Vec<Vec<RowSample>>,
}

impl LoadSeries {
    /// No samples yet of `rows` over what should take about `span_us`.
    pub(crate) fn new(rows: Vec<Row>, span_us: u64) -> Self {
        Self { rows, interval_us: (span_us / (SAMPLES_MAX as u64 / 2)).max(1_000), samples: Vec::new() }
    }

    /// Takes the sample of now; when to take the next one.
    pub(crate) fn take(&mut self, sample: Vec<RowSample>) -> u64 {
        self.samples.push(sample);
        if self.samples.len() > SAMPLES_MAX {
            let mut place = 0;
            self.samples.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.interval_us *= 2;
        }
        self.interval_us.saturating_mul(self.samples.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stay_few_and_at_even_distances() {
        let mut series = LoadSeries::new(vec![Row::new(1, 0)], 120_000);
        let mut now_us = 0;
        for _ in 0..1_000 {
            let requests = (now_us / 1_000) as u32;
            now_us = series.take(vec![RowSample { requests, ..RowSample::default() }]);
            assert!(series.samples.len() <= SAMPLES_MAX);
        }
        for (place, sample) in (0..).zip(&series.samples) {
            assert_eq!(u64::from(sample[0].requests) * 1_000, place * series.interval_us);
        }
    }
}
