//! From the process's arguments to its exit code.

use crate::{
    arguments::{Arguments, Subcommand},
    failure::Failure,
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
}

impl Default for Command {
    fn default() -> Self {
        Self::new()
    }
}

impl Command {
    /// The command with the built-in policies.
    #[must_use]
    pub fn new() -> Self {
        Self { catalogue: Ok(Catalogue::built_in()) }
    }

    /// Adds a policy, to be chosen by `name`. A name that is taken or no name fails the run.
    #[must_use]
    pub fn policy(mut self, name: impl Into<String>, factory: impl WorkerSelectionPolicyFactory) -> Self {
        self.catalogue = self.catalogue.and_then(|catalogue| catalogue.with(name, factory));
        self
    }

    /// Does what the process's arguments say.
    #[must_use]
    pub fn run(self) -> ExitCode {
        self.run_with(std::env::args_os())
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
        let arguments = Arguments::try_parse_from(arguments)?;
        let catalogue = self.catalogue.map_err(Failure::configuration)?;
        telemetry::init(&arguments.log, LogFormat::Auto).map_err(Failure::configuration)?;
        match arguments.subcommand {
            Subcommand::Up(arguments) => {
                open_files::raise_limit();
                let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build();
                let threads =
                    threads.map_err(|error| Failure::start(format!("cannot start threads: {error}")))?;
                threads.block_on(up(arguments, catalogue))
            }
            Subcommand::Replay(arguments) => replay(&arguments, &catalogue),
        }
    }
}
