//! What the command line can say.

use crate::{
    ctl::CtlArguments,
    process::{RouterArguments, WorkerArguments},
    replay::ReplayArguments,
};
use clap::{Args, Parser};
use std::{net::SocketAddr, path::PathBuf};
use switchtower_models::ModelSource;

/// A model whose tokenizer is given without a name.
const UNNAMED_MODEL: &str = "model";

/// A request router for LLM inference fleets.
#[derive(Debug, Parser)]
#[command(name = "switchtower", version, propagate_version = true, arg_required_else_help = false)]
pub(crate) struct Arguments {
    /// What to log, to stderr, for example `info` or `info,switchtower_selection=debug` [default: warn; of `router` and
    /// `worker`: info].
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,

    #[command(subcommand)]
    pub(crate) subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    /// Try it: one router and simulated workers in one process, no other servers needed.
    Up(UpArguments),
    /// Route requests for the workers of a cluster: the OpenAI API over etcd and NATS.
    Router(RouterArguments),
    /// Be a worker of a cluster, with simulated engines, or stand for a real engine.
    Worker(WorkerArguments),
    /// Look into a running cluster, and drain and resume its workers, through any router's admin address.
    Ctl(CtlArguments),
    /// Compare policies: play a recorded trace through the router against simulated engines, in virtual time.
    Replay(ReplayArguments),
}

/// One router and simulated workers in one process.
#[derive(Clone, Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct UpArguments {
    /// Simulated workers, each an HTTP server of its own on loopback.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,

    /// Data-parallel ranks of each worker.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) ranks: u32,

    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    pub(crate) http: SocketAddr,

    /// Where the admin API listens; nowhere unless given. It asks nobody who they are.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) admin: Option<SocketAddr>,

    #[command(flatten)]
    pub(crate) model: ModelArguments,

    /// The selection policy.
    #[arg(long, value_name = "NAME", default_value_t = switchtower_policy::KvRouterConfig::default().policy)]
    pub(crate) policy: String,

    /// How much faster than real engines the simulated ones run.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub(crate) speed: f64,

    /// Seeds the router's generator: the same requests in the same order get the same workers. Drawn anew unless given.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) seed: u64,

    /// A worker is busy beyond this fraction of the prompt tokens it takes in one step; requests wait in the router while
    /// all are. They never wait unless given.
    #[arg(long, value_name = "FRACTION")]
    pub(crate) queue_threshold: Option<f64>,
}

/// Which model. The same in every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelArguments {
    /// The name that clients call the model by [default: switchtower-demo].
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,

    /// A model's directory in the Hugging Face layout, or its tokenizer.json; the built-in model's unless given.
    #[arg(long, value_name = "PATH")]
    pub(crate) tokenizer: Option<PathBuf>,
}

impl ModelArguments {
    /// The model that they name; `None` if they name none.
    pub(crate) fn source(&self) -> Option<ModelSource> {
        match (&self.tokenizer, self.model.as_deref()) {
            (Some(path), name) => Some(ModelSource::path(name.unwrap_or(UNNAMED_MODEL), path)),
            (None, Some(name)) => Some(ModelSource::built_in_as(name)),
            (None, None) => None,
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "give an IP address and a port, for example 127.0.0.1:8080 or [::1]:8080")
}
