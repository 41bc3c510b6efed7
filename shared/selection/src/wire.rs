//! What workers and routers say to each other: subjects and messages on the bus, and the headers of a dispatch.
//!
//! JSON for now, in one place; the messages of the real bus take over here and nowhere else. A message that does not
//! parse is refused whole and counted by whoever received it.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use switchtower_ids::{Incarnation, Rank, WorkerId};
use switchtower_kv::event::RangeAnswer;

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

/// Most events a worker puts into one batch.
pub const BATCH_EVENTS_MAX: usize = 512;

/// Where one life of a worker answers [`RangeRequest`]s.
#[must_use]
pub fn range_subject(worker: WorkerId, incarnation: Incarnation) -> String {
    format!("kv.range.{worker}.{incarnation}")
}

/// Asks a worker for its log of one rank from an event on. Answered with a [`RangeReply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeRequest {
    /// Which rank's log.
    pub rank: Rank,
    /// The first event wanted; 0 asks for a snapshot.
    pub from: u64,
}

/// The answer to a [`RangeRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RangeReply {
    /// The events, or a snapshot where they are no longer kept.
    Range(RangeAnswer),
    /// The worker has no such rank.
    NoSuchRank,
}

/// A worker's own view of its load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Who reports.
    pub worker_id: WorkerId,
    /// In which life.
    pub incarnation: Incarnation,
    /// When it was measured, in milliseconds since 1970.
    pub measured_at_ms: u64,
    /// One entry per rank.
    pub ranks: Vec<RankLoad>,
}

/// One rank's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankLoad {
    /// Which rank.
    pub rank: Rank,
    /// Requests that are being processed.
    pub running: u64,
    /// Requests that wait in the engine.
    pub waiting: u64,
    /// KV blocks that running requests hold.
    pub blocks_used: u64,
    /// All KV blocks.
    pub blocks_total: u64,
    /// Prompt tokens not yet prefilled.
    pub prefill_tokens: u64,
    /// The last event of this rank's KV log, so that the loss of the newest events is noticed too.
    pub kv_sequence: u64,
}

/// A message that does not parse, or could not be written.
#[derive(Debug, thiserror::Error)]
#[error("not a valid {kind}: {source}")]
pub struct WireError {
    kind: &'static str,
    source: serde_json::Error,
}

/// Writes a message.
///
/// # Errors
/// Never for the types of this module; the serializer's own error otherwise.
pub fn encode<T: Serialize>(message: &T) -> Result<bytes::Bytes, WireError> {
    let json = serde_json::to_vec(message);
    json.map(bytes::Bytes::from).map_err(|source| WireError { kind: kind::<T>(), source })
}

/// Reads a message.
///
/// # Errors
/// Says what does not parse.
pub fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(payload).map_err(|source| WireError { kind: kind::<T>(), source })
}

fn kind<T>() -> &'static str {
    let path = std::any::type_name::<T>();
    path.rsplit("::").next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchtower_kv::event::EventBatch;

    #[test]
    fn messages_survive_the_way_and_garbage_is_named() {
        let request = RangeRequest { rank: Rank(3), from: 0 };
        assert_eq!(decode::<RangeRequest>(&encode(&request).unwrap()).unwrap(), request);
        for garbage in [&b""[..], b"{", b"\xff\xfe", b"[]", b"{\"row\":1}"] {
            let error = decode::<EventBatch>(garbage).unwrap_err().to_string();
            assert!(error.starts_with("not a valid EventBatch"), "{error}");
        }
    }
}
