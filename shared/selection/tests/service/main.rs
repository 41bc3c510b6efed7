//! The selection service on an in-memory cluster, with workers that are scripted records and logs.

mod approximate;
mod fleet;
mod index;
mod lifecycle;
mod metrics;
mod operators;
mod races;
mod readiness;
mod registry;
