//! What every process of the fleet needs and no domain knows of: named tasks and shutdown, signals, an HTTP server and
//! client that keep their promises under load and at the end, retries, TLS files, telemetry.
//!
//! Nothing here knows what a worker, a model or a reservation is. Everyone that does IO calls it; the sans-IO rooms
//! must not.

pub mod config;
pub mod http_client;
pub mod http_server;
pub mod open_files;
pub mod retry;
pub mod signals;
pub mod tasks;
pub mod telemetry;
pub mod tls;

pub use tasks::{OnError, TaskGroup, TaskHandle};
pub use tokio_util::sync::CancellationToken;
