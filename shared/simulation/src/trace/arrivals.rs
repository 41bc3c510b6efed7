//! What is done to arrival times: they begin at 0, requests with one timestamp are spread, and the pace can change.

use super::{Trace, TraceRequest};

/// Requests with their recorded times (which never go back), as requests that begin at 0, and the time that they cover.
/// Those that share a timestamp are spread evenly over the time to the next one; the last ones, behind whom nothing
/// comes, over as much time as those before them. A trace with one timestamp is one burst.
pub(super) fn spread(recorded: Vec<(u64, TraceRequest)>) -> (Vec<TraceRequest>, u64) {
    let start_us = recorded.first().map_or(0, |(at_us, _)| *at_us);
    let mut requests = Vec::with_capacity(recorded.len());
    let mut gap_us = 0;
    let mut end_us = 0;
    let mut groups = recorded.chunk_by(|a, b| a.0 == b.0).peekable();
    while let Some(group) = groups.next() {
        let at_us = group[0].0 - start_us;
        gap_us = groups.peek().map_or(gap_us, |next| next[0].0 - start_us - at_us);
        end_us = at_us + gap_us;
        for (place, (_, request)) in (0..).zip(group) {
            // Wide, because a trace may cover centuries.
            let offset_us = u128::from(gap_us) * place / group.len() as u128;
            requests.push(TraceRequest { arrival_us: at_us + offset_us as u64, ..request.clone() });
        }
    }
    (requests, end_us)
}

impl Trace {
    /// The same requests, arriving `factor` (above 0) times as fast.
    #[must_use]
    pub fn at_rate(mut self, factor: f64) -> Self {
        let scaled = |us: u64| (us as f64 / factor).round() as u64;
        for request in &mut self.requests {
            request.arrival_us = scaled(request.arrival_us);
        }
        self.span_us = scaled(self.span_us);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn at(times_us: &[u64]) -> Vec<(u64, TraceRequest)> {
        let request =
            TraceRequest { arrival_us: 0, prompt_tokens: 1, output_tokens: 1, blocks: Arc::new([]) };
        times_us.iter().map(|at_us| (*at_us, request.clone())).collect()
    }

    fn arrivals(times_us: &[u64]) -> (Vec<u64>, u64) {
        let (requests, span_us) = spread(at(times_us));
        (requests.iter().map(|request| request.arrival_us).collect(), span_us)
    }

    #[test]
    fn requests_that_share_a_timestamp_are_spread_to_the_next() {
        assert_eq!(arrivals(&[100, 100, 100, 130, 140]), (vec![0, 10, 20, 30, 40], 50));
        assert_eq!(arrivals(&[0, 60, 60]), (vec![0, 60, 90], 120), "the last as wide as those before");
        assert_eq!(arrivals(&[7, 7]), (vec![0, 0], 0), "one timestamp is one burst");
    }

    proptest! {
        #[test]
        fn the_order_stays_and_nobody_passes_the_next_timestamp(mut times in prop::collection::vec(0..1_000_u64, 1..60)) {
            times.sort_unstable();
            let (arrivals, span_us) = arrivals(&times);
            prop_assert!(arrivals.is_sorted());
            prop_assert!(arrivals.iter().all(|at| *at <= span_us));
            for (recorded, spread) in times.iter().zip(&arrivals) {
                let next = times.iter().find(|time| *time > recorded);
                prop_assert!(*spread >= recorded - times[0]);
                prop_assert!(next.is_none_or(|next| *spread < next - times[0]));
            }
        }
    }
}
