//! The processes of a real cluster, `router` and `worker`: their flags, their adapters, their lives. The only place that
//! knows etcd and NATS by name.

mod adapters;
mod arguments;
mod engine_agent;
mod router;
mod worker;

pub(crate) use arguments::{RouterArguments, WorkerArguments, WorkerRole};
pub(crate) use engine_agent::engine_agent;
pub(crate) use router::router;
pub(crate) use worker::worker;
