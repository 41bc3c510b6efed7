//! From the process's arguments to its exit code.

use crate::{
    arguments::{Arguments, Subcommand},
    ctl::ctl,
    failure::Failure,
    process::{self, WorkerRole},
    replay::replay,
    up::up,
};
use clap::Parser;
use std::{ffi::OsString, process::ExitCode};
use switchtower_policies::{Catalogue, CatalogueError};
use switchtower_policy::WorkerSelectionPolicyFactory;
use switchtower_runtime::{
    open_files,
    telemetry::{self, LogFormat},
};

/// The whole command with the built-in policies and those that are added.
pub struct Command {
    catalogue: Result<Catalogue, CatalogueError>,
    environment: Vec<(OsString, OsString)>,
}

/// What `up`, `replay` and `ctl` log unless told.
const LOG: &str = "warn";

impl Default for Command {
    fn default() -> Self {
        Self::new()
    }
}

impl Command {
    /// The command with the built-in policies.
    #[must_use]
    pub fn new() -> Self {
        Self { catalogue: Ok(Catalogue::built_in()), environment: Vec::new() }
    }

    /// Adds a policy, to be chosen by `name`. A name that is taken or no name fails the run.
    #[must_use]
    pub fn policy(mut self, name: impl Into<String>, factory: impl WorkerSelectionPolicyFactory) -> Self {
        self.catalogue = self.catalogue.and_then(|catalogue| catalogue.with(name, factory));
        self
    }

    /// Reads settings from these variables, those that begin with `SWITCHTOWER__`. None are read unless given.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        self.environment = variables.into_iter().collect();
        self
    }

    /// Does what the process's arguments and environment say. The one place where the environment is read.
    #[must_use]
    pub fn run(self) -> ExitCode {
        self.environment(std::env::vars_os()).run_with(std::env::args_os())
    }

    /// Does what `arguments` say, the program's name first.
    #[must_use]
    pub fn run_with(self, arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
        match self.try_run(arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(),
        }
    }

    fn try_run(
        self,
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<(), Failure> {
        let Arguments { log, subcommand } = Arguments::try_parse_from(arguments)?;
        let catalogue = self.catalogue.map_err(Failure::configuration)?;
        match subcommand {
            Subcommand::Up(arguments) => {
                start_log(log.as_deref().unwrap_or(LOG))?;
                block_on(up(arguments, catalogue))
            }
            Subcommand::Router(arguments) => match arguments.settings(log, self.environment, &catalogue)? {
                Some(settings) => {
                    start_log(&settings.log.filter)?;
                    block_on(process::router(settings, catalogue))
                }
                None => Ok(()),
            },
            Subcommand::Worker(arguments) => match arguments.settings(log, self.environment)? {
                Some(role) => {
                    start_log(&role.settings().log.filter)?;
                    block_on(be(role))
                }
                None => Ok(()),
            },
            Subcommand::Ctl(arguments) => {
                start_log(log.as_deref().unwrap_or(LOG))?;
                block_on(ctl(arguments))
            }
            Subcommand::Replay(arguments) => {
                start_log(log.as_deref().unwrap_or(LOG))?;
                replay(&arguments, &catalogue)
            }
        }
    }
}

async fn be(role: WorkerRole) -> Result<(), Failure> {
    match role {
        WorkerRole::Simulated(settings) => process::worker(settings).await,
        WorkerRole::EngineAgent(settings) => process::engine_agent(settings).await,
    }
}

fn start_log(filter: &str) -> Result<(), Failure> {
    telemetry::init(filter, LogFormat::Auto).map_err(Failure::configuration)
}

fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    open_files::raise_limit();
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    threads.map_err(|error| Failure::start(format!("cannot start threads: {error}")))?.block_on(work)
}
