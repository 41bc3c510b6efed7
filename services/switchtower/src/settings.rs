//! The one tree of settings that `router` and `worker` read: defaults < file < environment < flags. A file can hold both
//! processes' settings; each takes its sections. Holds and checks; nothing here opens or starts anything.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};
use switchtower_etcd::EtcdOptions;
use switchtower_models::{EngineConfig, Limits, ModelSource, Timeouts};
use switchtower_nats::NatsOptions;
use switchtower_policies::Catalogue;
use switchtower_policy::KvRouterConfig;
use switchtower_runtime::config::{Layers, Redaction};
use switchtower_selection::SelectionOptions;
use switchtower_worker::{EngineAgentConfig, SimulatedWorkerConfig};

/// Settings that are never shown.
pub(crate) const REDACTION: Redaction = Redaction::new(&["password", "token", "nkey_seed"]);

/// All settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// What is logged.
    pub(crate) log: LogSettings,
    /// Which cluster.
    pub(crate) cluster: ClusterSettings,
    /// Its discovery.
    pub(crate) etcd: EtcdOptions,
    /// Its bus.
    pub(crate) nats: NatsOptions,
    /// The router's API.
    pub(crate) http: HttpSettings,
    /// The router's admin API.
    pub(crate) admin: AdminSettings,
    /// How workers are chosen.
    pub(crate) router: KvRouterConfig,
    /// How the fleet is followed.
    pub(crate) selection: SelectionOptions,
    /// How much the API accepts.
    pub(crate) limits: Limits,
    /// How long the API waits; `drain_ms` is the worker's, too.
    pub(crate) timeouts: Timeouts,
    /// The models that a router serves. A worker serves one.
    pub(crate) models: Vec<ModelSource>,
    /// The simulated worker.
    pub(crate) worker: SimulatedWorkerConfig,
    /// The agent of a real engine.
    pub(crate) engine_agent: EngineAgentConfig,
}

/// `[log]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogSettings {
    /// What is logged, in the syntax of `tracing` directives.
    pub(crate) filter: String,
}

/// `[cluster]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ClusterSettings {
    /// Processes of one name see each other, and no others.
    pub(crate) name: String,
}

/// `[http]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HttpSettings {
    /// Where it listens; port 0 takes a free one.
    pub(crate) listen: SocketAddr,
}

/// `[admin]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AdminSettings {
    /// Where it listens; nowhere if this is unset (empty in the environment or a flag).
    pub(crate) listen: Option<SocketAddr>,
}

impl Default for Settings {
    fn default() -> Self {
        let EngineConfig { models, http, router, limits, timeouts, .. } = EngineConfig::default();
        Self {
            log: LogSettings::default(),
            cluster: ClusterSettings::default(),
            etcd: EtcdOptions {
                endpoints: vec!["http://127.0.0.1:2379".to_owned()],
                ..EtcdOptions::default()
            },
            nats: NatsOptions::new("nats://127.0.0.1:4222"),
            http: HttpSettings { listen: http },
            admin: AdminSettings::default(),
            router,
            selection: SelectionOptions::default(),
            limits,
            timeouts,
            models,
            worker: SimulatedWorkerConfig::default(),
            engine_agent: EngineAgentConfig::default(),
        }
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { filter: "info".to_owned() }
    }
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self { name: "default".to_owned() }
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self { listen: EngineConfig::default().http }
    }
}

impl Default for AdminSettings {
    fn default() -> Self {
        Self { listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090))) }
    }
}

/// A flag, the setting that it stands for, and its value if it was given.
pub(crate) type Flag = (&'static str, &'static str, Option<String>);

impl Settings {
    /// Puts the layers on one another.
    ///
    /// # Errors
    /// Exit code 64 and one line that names the setting and where it was set.
    pub(crate) fn read(
        file: Option<&PathBuf>,
        environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
        flags: impl IntoIterator<Item = Flag>,
    ) -> Result<Self, Failure> {
        let mut layers = Layers::<Self>::new(REDACTION).map_err(Failure::configuration)?;
        if let Some(path) = file {
            layers = layers.file(path).map_err(Failure::configuration)?;
        }
        layers = layers.environment(environment).map_err(Failure::configuration)?;
        for (flag, setting, value) in flags {
            layers = layers.flag(flag, setting, value);
        }
        layers.read().map_err(Failure::configuration)
    }

    /// What the front end is built from.
    pub(crate) fn engine_config(&self) -> EngineConfig {
        EngineConfig {
            models: self.models.clone(),
            http: self.http.listen,
            admin: self.admin.listen,
            router: self.router.clone(),
            limits: self.limits.clone(),
            timeouts: self.timeouts.clone(),
        }
    }

    /// Refuses what no router can run with.
    pub(crate) fn check_router(&self, catalogue: &Catalogue) -> Result<(), Failure> {
        self.engine_config().validate().map_err(Failure::configuration)?;
        self.router.validate().map_err(|error| Failure::configuration(format!("router: {error}")))?;
        for policy in [&self.router.policy, &self.router.fallback_policy] {
            catalogue.get(policy).map_err(Failure::configuration)?;
        }
        self.selection.validate().map_err(|error| Failure::configuration(format!("selection: {error}")))
    }

    /// Refuses what no agent of an engine can run with. Its model is the one that is configured, unless it names its own.
    pub(crate) fn check_engine_agent(&mut self) -> Result<(), Failure> {
        if let ([model], true) = (self.models.as_slice(), self.engine_agent.model.is_empty()) {
            self.engine_agent.model = model.name().to_owned();
        }
        self.engine_agent.validate().map_err(Failure::configuration)
    }

    /// Refuses what no worker can run with.
    pub(crate) fn check_worker(&self) -> Result<(), Failure> {
        let worker = &self.worker;
        worker.validate().map_err(Failure::configuration)?;
        if worker.listen.ip().is_unspecified() && worker.advertise.is_none() {
            return Err(Failure::configuration(format!(
                "worker.listen is {}, where no router reaches it: say its own address with --advertise http://HOST:PORT",
                worker.listen
            )));
        }
        match self.models.as_slice() {
            [_] => Ok(()),
            models => Err(Failure::configuration(format!(
                "models: a worker serves one, here are {}: say which with --model NAME",
                models.len()
            ))),
        }
    }
}
