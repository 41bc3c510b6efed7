//! Workers' own view of their load.

use super::message::{PartLimit, WireError, WireMessage};
use crate::records::RANKS_MAX;
use switchtower_ids::{Incarnation, Rank, WorkerId};
use switchtower_proto::v1;

/// A worker's own view of its load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// Who reports.
    pub worker_id: WorkerId,
    /// In which life.
    pub incarnation: Incarnation,
    /// When it was measured, in milliseconds since 1970.
    pub measured_at_ms: u64,
    /// One entry per rank, at most [`RANKS_MAX`].
    pub ranks: Vec<RankLoad>,
}

/// One rank's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl WireMessage for LoadReport {
    type Generated = v1::LoadReport;
    const KIND: &'static str = "LoadReport";
    const LIMITS: &'static [PartLimit] =
        &[PartLimit { parts: "ranks", path: &[5], limit: RANKS_MAX as usize }];

    fn to_generated(&self) -> v1::LoadReport {
        v1::LoadReport {
            major: v1::MAJOR,
            worker_id: self.worker_id.0,
            incarnation: self.incarnation.0,
            measured_at_ms: self.measured_at_ms,
            ranks: self.ranks.iter().copied().map(RankLoad::to_wire).collect(),
        }
    }

    fn from_generated(report: v1::LoadReport) -> Result<Self, WireError> {
        Ok(Self {
            worker_id: WorkerId(report.worker_id),
            incarnation: Incarnation(report.incarnation),
            measured_at_ms: report.measured_at_ms,
            ranks: report.ranks.into_iter().map(RankLoad::from_wire).collect(),
        })
    }
}

impl RankLoad {
    fn to_wire(self) -> v1::RankLoad {
        v1::RankLoad {
            rank: self.rank.0,
            running: self.running,
            waiting: self.waiting,
            blocks_used: self.blocks_used,
            blocks_total: self.blocks_total,
            prefill_tokens: self.prefill_tokens,
            kv_sequence: self.kv_sequence,
        }
    }

    fn from_wire(load: v1::RankLoad) -> Self {
        Self {
            rank: Rank(load.rank),
            running: load.running,
            waiting: load.waiting,
            blocks_used: load.blocks_used,
            blocks_total: load.blocks_total,
            prefill_tokens: load.prefill_tokens,
            kv_sequence: load.kv_sequence,
        }
    }
}
