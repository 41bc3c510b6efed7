//! The selection service: a registry that follows discovery, an index that follows the workers' KV events, and one
//! scheduler per partition and stage.
//!
//! Front ends call it through [`SelectionHandle`]; workers share its [`records`] and [`wire`] types. It owns the tasks
//! and channels around the sans-IO rooms (`kv`, `scheduling`) and decides nothing itself.

mod admin;
mod assumed;
mod builder;
mod clock;
mod detached;
mod index;
mod loads;
mod metrics;
mod options;
mod partition;
pub mod records;
pub mod registration;
mod registry;
mod request;
mod reservation;
mod scheduler;
mod service;
mod status;
pub mod wire;

pub use admin::{AdminError, ClusterHealth, DrainOutcome};
pub use builder::{BuildError, SelectionServiceBuilder};
pub use loads::PartitionLoads;
pub use metrics::SelectionTotals;
pub use options::{AssumedOptions, SelectionOptions};
pub use registry::{ModelStatus, RefusedRecord};
pub use request::{RESERVATION_ID_BYTES_MAX, SelectionRequest};
pub use reservation::{Reservation, WorkerFailure};
pub use service::{DetachedReservation, FreeOutcome, SelectionHandle, SelectionService};
pub use status::{IndexRow, LoadRow, ReportStatus, Reported, WorkerStatus};
pub use switchtower_kv::index::TierBlocks;
