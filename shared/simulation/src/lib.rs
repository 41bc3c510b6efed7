//! A router and a fleet of simulated engines in virtual time, from one seed; and what a recorded trace meets there.
//!
//! The router is the real one: its prefix index behind a cursor per row, its scheduler, the policies. The engines are
//! those that simulated workers run, each with the publisher of its KV log. Between them is a [`Network`] that takes its
//! time. Everything that happens stands in one [`Agenda`], ordered by time and then by when it was put there, so
//! the same trace, settings and seed give the same records on every machine: times are integers, and no result depends
//! on the order of a hash map.
//!
//! Sans-IO: `switchtower replay` reads the file, calls [`replay`], and writes the reports. Several replicas, loss,
//! reordering, partitions and crashes belong into [`Network`] and beside `Router`, which know nothing of traces.

mod agenda;
mod engine_node;
mod fleet;
mod load_series;
mod network;
mod offered;
mod record;
mod replay;
mod results;
mod router;
mod simulation;
pub mod trace;

pub use agenda::Agenda;
pub use fleet::{FleetError, FleetShape};
pub use load_series::{LoadSeries, RowSample};
pub use network::{Delay, Link, Network, NetworkDelays, Node, Way};
pub use offered::{OfferedWork, PaceError};
pub use record::{Record, Served};
pub use replay::{Played, PolicyChoice, ReplaySettings, replay};
pub use results::{Distribution, PolicyResult};
