//! The service as the admin API shows it: plain rows that serialize as they are to be read.
//!
//! Must not be what routes; made on demand from the tables that do.

use serde::{Serialize, Serializer};
use std::{fmt::LowerHex, sync::Arc};
use switchtower_ids::{Incarnation, PartitionId, Rank, Tier, WorkerId};

/// One worker that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerStatus {
    /// Its name.
    pub worker_id: WorkerId,
    /// Its life, in hexadecimal.
    #[serde(serialize_with = "incarnation")]
    pub incarnation: Incarnation,
    /// Base URL of the worker.
    pub endpoint: Arc<str>,
    /// Model, routing group and stage.
    #[serde(flatten)]
    pub partition: PartitionId,
    /// Number of data-parallel ranks.
    pub ranks: u32,
    /// Tokens per KV block.
    pub block_size: u32,
    /// Whether it publishes KV events; for one that does not, what is sent there is assumed to be cached.
    pub kv_events: bool,
    /// Its labels, sorted.
    pub taints: Vec<String>,
    /// Whether it takes no new requests by its own word.
    pub draining: bool,
    /// Whether it gets no new requests by an operator's word.
    pub drained: bool,
    /// What the operator gave as reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_reason: Option<Arc<str>>,
    /// The store's revision of its record.
    pub registered_revision: u64,
    /// How long ago its last load report came, in milliseconds; `None` if there is none that counts.
    pub report_age_ms: Option<u64>,
}

/// One tier of one row's column in the prefix index. Equal digests on two replicas mean equal blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IndexRow {
    /// Model, routing group and stage.
    #[serde(flatten)]
    pub partition: PartitionId,
    /// The worker.
    pub worker_id: WorkerId,
    /// Its rank.
    pub rank: Rank,
    /// Where the blocks are.
    pub tier: Tier,
    /// How many there are.
    pub blocks: u64,
    /// A sum over their mixed sequence hashes, in hexadecimal.
    #[serde(serialize_with = "hex")]
    pub digest: u64,
    /// The last event of the row's log that is applied; `None` for a row without a log.
    pub sequence: Option<u64>,
    /// Whether a part of the log is missing and being asked for.
    pub repairing: bool,
}

/// What is booked on one row, and what its worker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoadRow {
    /// Model, routing group and stage.
    #[serde(flatten)]
    pub partition: PartitionId,
    /// The worker.
    pub worker_id: WorkerId,
    /// Its rank.
    pub rank: Rank,
    /// Whether it gets no new requests, by its own word or an operator's.
    pub draining: bool,
    /// Requests booked on it.
    pub active_requests: u64,
    /// Booked prompt tokens that are not prefilled.
    pub active_prefill_tokens: u64,
    /// Distinct prompt blocks and output blocks booked on it.
    pub active_blocks: u64,
    /// Its KV blocks, where known.
    pub total_blocks: Option<u64>,
    /// Its worker's last report.
    pub report: Reported,
}

/// What one worker last said of one rank's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReportStatus {
    /// How long ago it came, in milliseconds.
    pub age_ms: u64,
    /// Requests that run.
    pub running: u64,
    /// Requests that wait inside the engine.
    pub waiting: u64,
    /// KV blocks held by running requests.
    pub blocks_used: u64,
    /// All KV blocks.
    pub blocks_total: u64,
    /// Prompt tokens that wait for their prefill.
    pub prefill_tokens: u64,
}

/// A row's last report: what nobody has reported, or not for long, is neither idle nor full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", untagged)]
pub enum Reported {
    /// There is a report that counts.
    Known(ReportStatus),
    /// There is none; `"unknown"`.
    #[serde(serialize_with = "unknown")]
    Unknown,
}

fn incarnation<S: Serializer>(incarnation: &Incarnation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(incarnation)
}

fn hex<S: Serializer>(number: &impl LowerHex, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:016x}"))
}

fn unknown<S: Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("unknown")
}
