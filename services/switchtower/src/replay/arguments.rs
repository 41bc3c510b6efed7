//! What the command line of `replay` can say.

use clap::Args;
use std::{num::NonZeroUsize, path::PathBuf};
use switchtower_simulation::trace::TraceFormat;

/// A recorded trace on a fleet of simulated engines.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArguments {
    /// The recorded trace.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,

    /// How it is written: `mooncake` (JSON lines) or `azure` (CSV); guessed unless given.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<TraceFormat>,

    /// Simulated workers.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) workers: u32,

    /// Data-parallel ranks of each worker.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) ranks: u32,

    /// KV blocks of 512 tokens of each worker; its ranks share them evenly.
    #[arg(long, value_name = "N", default_value_t = 8_192)]
    pub(crate) blocks_per_worker: u32,

    /// A policy to play; give it several times to compare.
    #[arg(long = "policy", value_name = "NAME", default_values_t = [switchtower_policy::KvRouterConfig::default().policy])]
    pub(crate) policies: Vec<String>,

    /// Let requests arrive so many times as fast as recorded [default: 1].
    #[arg(long, value_name = "X", conflicts_with = "utilisation", value_parser = rate_scale)]
    pub(crate) rate_scale: Option<f64>,

    /// Let requests arrive as fast as keeps the engines busy to this fraction: prefill work at the oracle's hits ÷ the time
    /// that decoding leaves.
    #[arg(long, value_name = "U", value_parser = utilisation)]
    pub(crate) utilisation: Option<f64>,

    /// A worker is busy beyond this fraction of the prompt tokens it takes in one step; requests wait in the router while
    /// all are. They never wait unless given.
    #[arg(long, value_name = "FRACTION")]
    pub(crate) queue_threshold: Option<f64>,

    /// Play only the first requests.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<NonZeroUsize>,

    /// Leave out bad lines of the trace and count them, instead of refusing it.
    #[arg(long)]
    pub(crate) skip_bad: bool,

    /// Seeds the policies and the network: the same seed gives the same figures.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,

    /// Print the figures as JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write a report with charts to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

fn rate_scale(text: &str) -> Result<f64, String> {
    within(text, 1e-6, 1e6)
}

fn utilisation(text: &str) -> Result<f64, String> {
    within(text, 0.001, 100.0)
}

fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("give a number from {least} to {most}"))
}
