//! Small builders that the tests of this crate share.

use crate::{Constraints, Request, RowInfo};
use std::sync::Arc;
use switchtower_ids::{Incarnation, ReplicaId, ReservationKey, Row, SequenceHash};
use switchtower_kv::index::RowSlot;

/// A row in the worker's first life, whose index slot is ten times the worker plus the rank.
pub(crate) fn info(worker: u64, rank: u32) -> RowInfo {
    RowInfo {
        row: Row::new(worker, rank),
        slot: RowSlot(u32::try_from(worker).unwrap() * 10 + rank),
        incarnation: Incarnation(1),
        revision: 1,
        endpoint: format!("http://127.0.0.1:{worker}").into(),
        taints: Arc::new([]),
        draining: false,
        total_blocks: Some(1_000),
        max_batch_tokens: Some(1_000),
    }
}

/// The same row with taints.
pub(crate) fn tainted(worker: u64, taints: &[&str]) -> RowInfo {
    let mut taints: Vec<String> = taints.iter().map(ToString::to_string).collect();
    taints.sort();
    RowInfo { taints: taints.into(), ..info(worker, 0) }
}

pub(crate) fn key(counter: u64) -> ReservationKey {
    ReservationKey { holder: ReplicaId(1), counter }
}

/// Sequence hashes of a prompt whose blocks nobody else has.
pub(crate) fn prompt(seed: u64, blocks: u64) -> Arc<[SequenceHash]> {
    (0..blocks).map(|block| SequenceHash(seed * 1_000_000 + block + 1)).collect()
}

/// A request of `blocks` full blocks of 16 tokens, arrived at 0, without constraints.
pub(crate) fn request(counter: u64, blocks: u64) -> Request {
    Request {
        key: key(counter),
        blocks: prompt(counter, blocks),
        prompt_tokens: blocks * 16,
        expected_output_tokens: None,
        constraints: Constraints::default(),
        priority: 0.0,
        session: None,
        alias: None,
        arrival_ms: 0,
        deadline_ms: None,
    }
}

/// The same request with constraints.
pub(crate) fn constrained(counter: u64, constraints: Constraints) -> Request {
    Request { constraints, ..request(counter, 4) }
}
