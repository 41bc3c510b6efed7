//! How much work a trace is for a fleet, and how fast it has to arrive for a wanted utilisation.
//!
//! ```text
//! prefill  P = Σ over requests: engine time to compute the prompt less what the oracle hits
//! decode   D = Σ over requests: engine time to decode the output less its first token
//! capacity C = rows × span − D                 time that decoding leaves for prefill
//! utilisation U = P ÷ C
//! ```
//!
//! Engine times are those of `EngineParameters::prefill_work_us` and `decode_work_us`: the terms of the step formula that
//! the content makes; the fixed part of a step is not counted. For a wanted U the span is (P ÷ U + D) ÷ rows.

use crate::{FleetShape, trace::Trace};

/// The work of a trace on one kind of engine, in microseconds of one engine's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfferedWork {
    /// Prefill at the oracle's hits.
    pub prefill_us: f64,
    /// Decode.
    pub decode_us: f64,
}

/// Why arrival times cannot be scaled to a utilisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "all requests have one timestamp, so their rate cannot be scaled to a utilisation: use --rate-scale or another trace"
)]
pub struct PaceError;

impl OfferedWork {
    /// The work of `trace` on the engines of `fleet`.
    #[must_use]
    pub fn of(trace: &Trace, fleet: FleetShape) -> Self {
        let engine = fleet.engine();
        let mut work = Self { prefill_us: 0.0, decode_us: 0.0 };
        for (request, hit) in trace.requests.iter().zip(trace.oracle_hits()) {
            let prompt_tokens = u64::from(request.prompt_tokens);
            work.prefill_us += engine.prefill_work_us(prompt_tokens, hit.into());
            work.decode_us += engine.decode_work_us(prompt_tokens, request.output_tokens.into());
        }
        work
    }

    /// How many times as fast the trace must arrive for `utilisation` (above 0).
    ///
    /// # Errors
    /// The trace covers no time.
    pub fn rate_for(&self, utilisation: f64, trace: &Trace, fleet: FleetShape) -> Result<f64, PaceError> {
        if trace.span_us == 0 {
            return Err(PaceError);
        }
        let span_us = (self.prefill_us / utilisation + self.decode_us) / f64::from(fleet.rows());
        // A trace whose prompts are all cached and whose outputs are one token is no work at any rate.
        Ok(trace.span_us as f64 / span_us.max(1.0))
    }

    /// The utilisation of a trace as it arrives; none where decoding alone takes more time than there is.
    #[must_use]
    pub fn utilisation(&self, trace: &Trace, fleet: FleetShape) -> Option<f64> {
        let capacity_us = f64::from(fleet.rows()) * trace.span_us as f64 - self.decode_us;
        (capacity_us > 0.0).then(|| self.prefill_us / capacity_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ReadOptions;

    const FLEET: FleetShape = FleetShape { workers: 2, ranks: 1, blocks_per_worker: 100 };

    #[test]
    fn the_rate_gives_the_utilisation() {
        let line = |at: u64| {
            format!(
                "{{\"timestamp\":{at},\"input_length\":1000,\"output_length\":100,\"hash_ids\":[0,{at}]}}\n"
            )
        };
        let text: String = (0..50).map(|at| line(at * 1_000)).collect();
        let trace = Trace::read(text.as_bytes(), ReadOptions::default()).unwrap();
        let work = OfferedWork::of(&trace, FLEET);
        let first_us = FLEET.engine().prefill_work_us(1_000, 0);
        let others_us = 49.0 * FLEET.engine().prefill_work_us(1_000, 512);
        assert!((work.prefill_us - first_us - others_us).abs() < 1.0);
        for utilisation in [0.1, 0.66, 2.0] {
            let faster = trace.clone().at_rate(work.rate_for(utilisation, &trace, FLEET).unwrap());
            let reached = OfferedWork::of(&faster, FLEET).utilisation(&faster, FLEET).unwrap();
            assert!((reached - utilisation).abs() < 1e-3 * utilisation, "{reached} {utilisation}");
        }
        assert_eq!(work.utilisation(&trace.clone().at_rate(1e9), FLEET), None);
    }

    #[test]
    fn one_burst_has_no_rate() {
        let text = "{\"timestamp\":0,\"input_length\":10,\"output_length\":1,\"hash_ids\":[0]}\n".repeat(3);
        let trace = Trace::read(text.as_bytes(), ReadOptions::default()).unwrap();
        assert_eq!(OfferedWork::of(&trace, FLEET).rate_for(0.5, &trace, FLEET), Err(PaceError));
    }
}
