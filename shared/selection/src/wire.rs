//! What workers and routers say to each other: subjects and messages on the bus, and the headers of a dispatch.
//!
//! The edge between the protobuf messages of `switchtower-proto` and the domain: nothing generated leaves this module. A
//! message that does not parse, contradicts itself or is of a version to come is refused whole and counted by whoever
//! received it. Workers use the sending half, the registry the receiving one.

mod answers;
mod events;
mod fields;
mod loads;
mod message;
mod paging;
mod ranges;
#[cfg(test)]
mod tests;

pub use answers::{RangeAnswers, RankLog};
pub use loads::{LoadReport, RankLoad};
pub use message::{WireError, WireMessage, decode, encode};
pub use paging::{EncodedBatches, encode_batches};
pub use ranges::{RangeReply, RangeRequest, RangeWanted, Refusal, SnapshotChunk};

use switchtower_ids::{Incarnation, WorkerId};

/// HTTP header of a dispatch: the life of the worker that was chosen, in hexadecimal. A worker in another life refuses
/// the request with 409 and the code `incarnation_mismatch` (`book rule 10`).
pub const INCARNATION_HEADER: &str = "x-switchtower-incarnation";

/// HTTP header of a dispatch: the rank that was chosen. Without it a simulated worker takes its least loaded one. Answers
/// carry the rank that served them under the same name.
pub const RANK_HEADER: &str = "x-data-parallel-rank";

/// Where every worker publishes its KV events, as [`switchtower_kv::event::EventBatch`].
pub const KV_EVENTS: &str = "kv.events";

/// Where every worker publishes its [`LoadReport`]s.
pub const LOADS: &str = "loads";

/// Most events that a worker of ours puts into one batch.
pub const BATCH_EVENTS_MAX: usize = 512;

/// Most events that one message may bring, whoever sent it.
pub const EVENTS_MAX: usize = 4_096;

/// Most runs of blocks in one [`SnapshotChunk`].
pub const RUNS_MAX: usize = 65_536;

/// Most chunks of one snapshot.
pub const CHUNKS_MAX: u32 = 65_536;

/// Where one life of a worker answers [`RangeRequest`]s.
#[must_use]
pub fn range_subject(worker: WorkerId, incarnation: Incarnation) -> String {
    format!("kv.range.{worker}.{incarnation}")
}
