//! The `switchtower` command, as a library: a custom binary adds its policies and gets the whole command.
//!
//! ```no_run
//! # use switchtower_policy::{KvRouterConfig, RoutingPartitionRef, WorkerSelectionPolicy};
//! # fn my_policy(c: &KvRouterConfig, l: &'static str, p: RoutingPartitionRef<'_>) -> WorkerSelectionPolicy {
//! #     switchtower_policies::random(c, l, p)
//! # }
//! fn main() -> std::process::ExitCode {
//!     switchtower::Command::new().policy("my-policy", my_policy).run()
//! }
//! ```
//!
//! Wiring only: arguments, configuration, telemetry, services, shutdown, exit code. This crate alone picks adapters.

mod announce;
mod arguments;
mod command;
mod ctl;
mod failure;
mod process;
mod replay;
mod settings;
mod status;
mod up;

pub use command::Command;
