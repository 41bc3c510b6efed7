//! The flags of `router` and `worker`. Most stand for a setting and are its highest layer, read as text by the setting's own
//! type; `--config` and `--print-config` are about the settings themselves.

use crate::{
    arguments::ModelArguments,
    failure::Failure,
    settings::{Flag, REDACTION, Settings},
};
use clap::Args;
use std::{ffi::OsString, io::Write, path::PathBuf};
use switchtower_models::ModelSource;
use switchtower_policies::Catalogue;

/// Flags of every process of a cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProcessArguments {
    /// A TOML file with settings. Variables like SWITCHTOWER__HTTP__LISTEN win over it, and flags over both.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the settings, print them as such a file, secrets hidden, and do nothing else.
    #[arg(long)]
    print_config: bool,

    /// The etcd members (etcd.endpoints).
    #[arg(long, value_name = "URL[,URL]")]
    etcd: Option<String>,

    /// The NATS servers (nats.servers).
    #[arg(long, value_name = "URL[,URL]")]
    nats: Option<String>,

    /// The cluster's name: processes of one name see each other and no others (cluster.name).
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    #[command(flatten)]
    model: ModelArguments,
}

/// A router.
#[derive(Clone, Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct RouterArguments {
    #[command(flatten)]
    process: ProcessArguments,

    /// Where the OpenAI API listens; port 0 takes a free one (http.listen).
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,

    /// Where the admin API listens; port 0 takes a free one, an empty text none (admin.listen).
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,

    /// The selection policy (router.policy).
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,

    /// Seeds the router's generator; drawn anew unless given (router.seed).
    #[arg(long, value_name = "N")]
    seed: Option<String>,

    /// Requests wait in the router while every worker has more prefill booked than this fraction of one step
    /// (router.queue_threshold).
    #[arg(long, value_name = "FRACTION")]
    queue_threshold: Option<String>,
}

/// A worker.
#[derive(Clone, Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct WorkerArguments {
    #[command(flatten)]
    process: ProcessArguments,

    /// With simulated engines, which behave like real ones in time, cache and load; settings of the section worker.
    #[arg(long, required_unless_present_any = ["engine", "print_config"])]
    sim: bool,

    /// For a real engine, any server with the OpenAI API: registers it while it is well, and takes no requests itself; settings
    /// of the section engine_agent (engine_agent.url).
    #[arg(long, value_name = "http://HOST:PORT", conflicts_with_all = ["sim", "listen", "speed", "tokenizer"])]
    engine: Option<String>,

    /// Where it listens; port 0 takes a free one (worker.listen).
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,

    /// The URL that routers reach it under, http://HOST:PORT, if that is not where it listens or the engine is asked
    /// (worker.advertise, engine_agent.advertise).
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,

    /// Its name in the cluster, a number; stays across restarts (worker.worker_id, engine_agent.worker_id).
    #[arg(long, value_name = "N")]
    worker_id: Option<String>,

    /// Data-parallel ranks (worker.ranks, engine_agent.ranks).
    #[arg(long, value_name = "N")]
    ranks: Option<String>,

    /// How much faster than real engines it runs (worker.speed).
    #[arg(long, value_name = "FACTOR")]
    speed: Option<String>,

    /// KV blocks of each rank (worker.engine.total_blocks, engine_agent.total_blocks).
    #[arg(long, value_name = "N")]
    blocks: Option<String>,

    /// Tokens per KV block of a real engine (engine_agent.block_size).
    #[arg(long, value_name = "N", requires = "engine")]
    block_size: Option<String>,

    /// The group that it belongs to; groups of one model share no requests (worker.routing_group,
    /// engine_agent.routing_group).
    #[arg(long, value_name = "NAME")]
    routing_group: Option<String>,

    /// Labels that requests can require or prefer (worker.taints, engine_agent.taints).
    #[arg(long, value_name = "NAME[,NAME]")]
    taints: Option<String>,
}

/// What a `worker` process is, with settings that it can run with.
pub(crate) enum WorkerRole {
    /// `--sim`.
    Simulated(Settings),
    /// `--engine`.
    EngineAgent(Settings),
}

impl WorkerRole {
    /// The settings of all layers.
    pub(crate) fn settings(&self) -> &Settings {
        match self {
            Self::Simulated(settings) | Self::EngineAgent(settings) => settings,
        }
    }
}

impl RouterArguments {
    /// The settings of all layers, checked; `None` if they were only to be printed.
    pub(crate) fn settings(
        self,
        log: Option<String>,
        environment: Vec<(OsString, OsString)>,
        catalogue: &Catalogue,
    ) -> Result<Option<Settings>, Failure> {
        let flags = [
            ("--http", "http.listen", self.http),
            ("--admin", "admin.listen", self.admin),
            ("--policy", "router.policy", self.policy),
            ("--seed", "router.seed", self.seed),
            ("--queue-threshold", "router.queue_threshold", self.queue_threshold),
        ];
        let settings = self.process.read(log, environment, flags)?;
        settings.check_router(catalogue)?;
        self.process.unless_printed(settings)
    }
}

impl WorkerArguments {
    /// The settings of all layers, checked; `None` if they were only to be printed.
    pub(crate) fn settings(
        self,
        log: Option<String>,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<Option<WorkerRole>, Failure> {
        let is_agent = self.engine.is_some();
        let flags = if is_agent { self.agent_flags() } else { self.simulated_flags() };
        let mut settings = self.process.read(log, environment, flags)?;
        if is_agent {
            settings.check_engine_agent()?;
        } else {
            settings.check_worker()?;
        }
        let role = if is_agent { WorkerRole::EngineAgent } else { WorkerRole::Simulated };
        Ok(self.process.unless_printed(settings)?.map(role))
    }

    fn simulated_flags(&self) -> Vec<Flag> {
        vec![
            ("--listen", "worker.listen", self.listen.clone()),
            ("--advertise", "worker.advertise", self.advertise.clone()),
            ("--worker-id", "worker.worker_id", self.worker_id.clone()),
            ("--ranks", "worker.ranks", self.ranks.clone()),
            ("--speed", "worker.speed", self.speed.clone()),
            ("--blocks", "worker.engine.total_blocks", self.blocks.clone()),
            ("--routing-group", "worker.routing_group", self.routing_group.clone()),
            ("--taints", "worker.taints", self.taints.clone()),
        ]
    }

    fn agent_flags(&self) -> Vec<Flag> {
        vec![
            ("--engine", "engine_agent.url", self.engine.clone()),
            ("--model", "engine_agent.model", self.process.model.model.clone()),
            ("--advertise", "engine_agent.advertise", self.advertise.clone()),
            ("--worker-id", "engine_agent.worker_id", self.worker_id.clone()),
            ("--ranks", "engine_agent.ranks", self.ranks.clone()),
            ("--blocks", "engine_agent.total_blocks", self.blocks.clone()),
            ("--block-size", "engine_agent.block_size", self.block_size.clone()),
            ("--routing-group", "engine_agent.routing_group", self.routing_group.clone()),
            ("--taints", "engine_agent.taints", self.taints.clone()),
        ]
    }
}

impl ProcessArguments {
    fn read(
        &self,
        log: Option<String>,
        environment: Vec<(OsString, OsString)>,
        flags: impl IntoIterator<Item = Flag>,
    ) -> Result<Settings, Failure> {
        let shared = [
            ("--log", "log.filter", log),
            ("--etcd", "etcd.endpoints", self.etcd.clone()),
            ("--nats", "nats.servers", self.nats.clone()),
            ("--cluster", "cluster.name", self.cluster.clone()),
        ];
        let flags = shared.into_iter().chain(flags);
        let mut settings = Settings::read(self.config.as_ref(), environment, flags)?;
        if let Some(source) = self.model.source() {
            settings.models = vec![self.chosen(&settings.models, source)];
        }
        Ok(settings)
    }

    /// The model that the flags name. A name alone may be that of a configured model.
    fn chosen(&self, configured: &[ModelSource], source: ModelSource) -> ModelSource {
        let same = configured.iter().find(|model| model.name() == source.name());
        same.filter(|_| self.model.tokenizer.is_none()).cloned().unwrap_or(source)
    }

    fn unless_printed(&self, settings: Settings) -> Result<Option<Settings>, Failure> {
        if !self.print_config {
            return Ok(Some(settings));
        }
        let text = REDACTION.toml(&settings).map_err(Failure::configuration)?;
        match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Failure::start(format!("cannot write the settings: {error}")))
            }
            _ => Ok(None),
        }
    }
}
