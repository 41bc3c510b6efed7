//! Follows discovery and the workers' own news, and keeps every partition's rows, index and loads up to date.
//!
//! One task owns all of it. Discovery's records become rows ([`fleet`]); rows get a column in their partition's index and
//! a cursor in their KV event log ([`ingest`]); what routes is published as one [`RegistryView`] (design invariant 7).

mod asked;
mod feed;
mod fleet;
mod follower;
mod ingest;
mod latest;
mod partitions;
mod pull;
mod repair;
mod reports;
mod view;

pub(crate) use asked::IndexQuestions;
pub(crate) use feed::RecordFeed;
pub(crate) use follower::{Follower, Outlets, Subscriptions};
pub(crate) use latest::LatestReports;
pub(crate) use partitions::PartitionFactory;
pub use view::{ModelStatus, RefusedRecord};
pub(crate) use view::{PartitionView, RegistryView};
