//! Workers as routers know them: records in discovery, KV events and load on the bus, OpenAI's API over HTTP.
//!
//! The *simulated worker* is a real HTTP server in front of simulated engines; a router cannot tell it from a real one,
//! and tests can make it fail on purpose. The *engine agent* stands beside a real engine and says all of this for it,
//! while requests go to the engine itself. Both must not know of routers: they meet them only through discovery, the bus and
//! HTTP. Started by the command (`up`, `worker`) and by tests.
//!
//! A request's way through the simulated worker: `api` → `gate` (drain) → `prepare` (tokens, reply, hashes) → `rank` (the
//! engine) → `answer` and `frames` (the body). Beside it: `publication` (KV log, load) and `worker` (life and order).

mod answer;
mod api;
mod clock;
mod config;
mod engine_agent;
mod error;
mod faults;
mod frames;
mod gate;
mod identity;
mod prepare;
mod publication;
mod rank;
mod reply;
mod service;
mod text;
mod worker;

pub use config::{ConfigError, SimulatedWorkerConfig};
pub use engine_agent::{EngineAgent, EngineAgentConfig, EngineAgentConfigError, EngineAgentError};
pub use faults::{FaultError, Faults};
pub use publication::PublicationCounts;
pub use worker::{Drained, RunningWorker, SimulatedWorker, WorkerError};
