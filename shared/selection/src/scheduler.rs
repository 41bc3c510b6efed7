//! One partition's scheduler as an actor: one task owns it, and channels bring it requests, releases and news.

mod handle;
mod service;

pub(crate) use handle::{SchedulerHandle, SchedulerParts, StartIn, start};
pub(crate) use service::SchedulerState;
