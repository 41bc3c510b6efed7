//! What a replay has to report: facts about the trace and the settings, and the figures of each policy. The JSON is written
//! from it as it is; the table and the page pick from it.

use super::ReplayArguments;
use serde::{Serialize, Serializer, ser::SerializeSeq};
use std::path::Path;
use switchtower_simulation::{
    NetworkDelays, OfferedWork, Played, ReplaySettings,
    trace::{BLOCK_TOKENS, Trace},
};

/// Everything that was found out.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    pub(super) trace: TraceFacts,
    pub(super) settings: SettingFacts,
    #[serde(rename = "results", serialize_with = "results")]
    pub(super) played: &'a [Played],
}

/// The trace as recorded.
#[derive(Serialize)]
pub(super) struct TraceFacts {
    pub(super) file: String,
    pub(super) format: &'static str,
    pub(super) requests: usize,
    pub(super) skipped: u64,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) span_ms: f64,
}

/// What was played, and how fast.
#[derive(Serialize)]
pub(super) struct SettingFacts {
    pub(super) workers: u32,
    pub(super) ranks: u32,
    pub(super) blocks_per_worker: u32,
    pub(super) block_tokens: u32,
    pub(super) rate_scale: f64,
    /// Asked for, or what the rate comes to; none where decoding alone is more than the fleet can do.
    pub(super) utilisation: Option<f64>,
    pub(super) limit: Option<usize>,
    pub(super) seed: u64,
    pub(super) queue_threshold: Option<f64>,
    pub(super) network: NetworkDelays,
    pub(super) engine: serde_json::Value,
}

impl TraceFacts {
    pub(super) fn new(path: &Path, trace: &Trace) -> Self {
        Self {
            file: path.display().to_string(),
            format: trace.format.name(),
            requests: trace.requests.len(),
            skipped: trace.skipped,
            input_tokens: trace.input_tokens(),
            output_tokens: trace.output_tokens(),
            span_ms: trace.span_us as f64 / 1_000.0,
        }
    }
}

impl SettingFacts {
    pub(super) fn new(
        arguments: &ReplayArguments,
        settings: &ReplaySettings,
        trace: &Trace,
        rate_scale: f64,
    ) -> Self {
        let fleet = settings.fleet;
        let reached = || OfferedWork::of(trace, fleet).utilisation(trace, fleet);
        Self {
            workers: fleet.workers,
            ranks: fleet.ranks,
            blocks_per_worker: fleet.blocks_per_worker,
            block_tokens: BLOCK_TOKENS,
            rate_scale,
            utilisation: arguments.utilisation.or_else(reached),
            limit: arguments.limit.map(std::num::NonZeroUsize::get),
            seed: arguments.seed,
            queue_threshold: arguments.queue_threshold,
            network: settings.network,
            // Plain numbers: they have a JSON form.
            engine: serde_json::to_value(fleet.engine()).unwrap_or_default(),
        }
    }
}

impl Report<'_> {
    /// The whole report as JSON with a final line break.
    pub(super) fn json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

fn results<S: Serializer>(played: &&[Played], serializer: S) -> Result<S::Ok, S::Error> {
    let mut results = serializer.serialize_seq(Some(played.len()))?;
    for played in *played {
        results.serialize_element(&played.result)?;
    }
    results.end()
}
