//! The selection service on an in-memory cluster, with workers that are scripted records and logs.

mod fleet;
mod index;
mod lifecycle;
mod metrics;
mod races;
mod registry;
