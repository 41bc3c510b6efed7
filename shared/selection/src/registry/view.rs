//! What the registry publishes: the tables that route, and what was refused.

use crate::{WorkerStatus, partition::Partition};
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc};
use switchtower_ids::PartitionId;

/// A record that does not take part, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct RefusedRecord {
    /// Its key in discovery.
    pub key: String,
    /// What kind of mistake it is, from a small fixed set.
    pub kind: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

impl RefusedRecord {
    /// Every kind of mistake there is.
    pub const KINDS: [&'static str; 6] = ["parse", "version", "field", "key", "block_size", "id_taken"];
}

/// One partition and how many workers and rows serve it.
#[derive(Clone, Debug)]
pub(crate) struct PartitionView {
    pub(crate) partition: Arc<Partition>,
    pub(crate) workers: usize,
    pub(crate) rows: usize,
    /// Rows that take new requests.
    pub(crate) open_rows: usize,
}

/// The fleet, as requests are routed over it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegistryView {
    /// Whether a full snapshot of discovery has been seen.
    pub(crate) synced: bool,
    /// Whether every row's KV event log was in the index at some moment since; stays so.
    pub(crate) caught_up: bool,
    pub(crate) partitions: BTreeMap<PartitionId, PartitionView>,
    /// By id.
    pub(crate) workers: Vec<WorkerStatus>,
    pub(crate) refused: Vec<RefusedRecord>,
}

/// One partition as its callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelStatus {
    /// Public name of the model.
    pub model: Arc<str>,
    /// The partition.
    pub partition: PartitionId,
    /// Tokens per block.
    pub block_size: u32,
    /// Workers that serve it.
    pub workers: usize,
    /// Their rows.
    pub rows: usize,
    /// Rows that take new requests.
    pub open_rows: usize,
}

impl From<&PartitionView> for ModelStatus {
    fn from(view: &PartitionView) -> Self {
        Self {
            model: Arc::clone(&view.partition.id.model),
            partition: view.partition.id.clone(),
            block_size: view.partition.block_size.get(),
            workers: view.workers,
            rows: view.rows,
            open_rows: view.open_rows,
        }
    }
}
