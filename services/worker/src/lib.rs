//! The simulated worker: a real HTTP server that speaks OpenAI's API in front of simulated engines, registers itself in
//! discovery, and publishes its KV events and its load, so that a router cannot tell it from a real one.
//!
//! Must not know of routers: it meets them only through discovery, the bus and HTTP. Started by the command (`up`,
//! `worker`) and by tests, which can also make it fail on purpose.
//!
//! A request's way: `api` → `gate` (drain) → `prepare` (tokens, reply, hashes) → `rank` (the engine) → `answer` and
//! `frames` (the body). Beside it: `publication` (KV log, load) and `worker` (life and order).

mod answer;
mod api;
mod clock;
mod config;
mod error;
mod faults;
mod frames;
mod gate;
mod prepare;
mod publication;
mod rank;
mod reply;
mod service;
mod text;
mod worker;

pub use config::{ConfigError, SimulatedWorkerConfig};
pub use faults::{FaultError, Faults};
pub use worker::{Drained, RunningWorker, SimulatedWorker, WorkerError};
