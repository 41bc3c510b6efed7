//! The OpenAI-compatible HTTP front end: takes requests, has a worker chosen for each, and streams the worker's answer
//! back byte for byte.
//!
//! It judges requests (with `models`), asks the selection service (`selection`) and carries bytes; it does not choose
//! workers, and it never rewrites a request or an answer. Called by the command and by custom binaries:
//!
//! ```no_run
//! # async fn example() -> Result<(), switchtower_frontend::FrontendError> {
//! use switchtower_cluster::DistributedRuntime;
//! use switchtower_frontend::HttpFrontend;
//! use switchtower_models::EngineConfig;
//!
//! HttpFrontend::default().run(DistributedRuntime::in_memory("demo"), EngineConfig::default()).await
//! # }
//! ```
//!
//! The way of a request is `generate.rs`, from top to bottom. `admin` is for operators, on a listener of its own.

mod admin;
mod body;
mod dispatch;
mod error;
mod event_stream;
mod exchange;
mod frontend;
mod generate;
mod hints;
mod idle;
mod metrics;
mod model_list;
mod outbound;
mod probes;
mod prompt;
mod refusal;
mod relay;
mod request_id;
mod routes;
mod state;
mod usage;
mod worker_answer;

pub use error::FrontendError;
pub use frontend::{BoundFrontend, HttpFrontend};
