//! What the fleet should be: rows by partition, workers as they are shown, and what is refused. Built by
//! [`Fleet::wanted`](super::Fleet::wanted), read by the registry's task.

use super::{Known, RefusedRecord};
use crate::{WorkerStatus, records::DrainSetting};
use std::{cmp::Reverse, collections::BTreeMap, num::NonZeroU32, sync::Arc};
use switchtower_ids::{Incarnation, PartitionId, Rank, Row};

/// One row that a partition should have. The index slot is the caller's to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedRow {
    pub(crate) row: Row,
    pub(crate) incarnation: Incarnation,
    pub(crate) revision: u64,
    pub(crate) endpoint: Arc<str>,
    pub(crate) taints: Arc<[String]>,
    /// By the worker's own word or an operator's.
    pub(crate) draining: bool,
    pub(crate) kv_events: bool,
    pub(crate) total_blocks: Option<u64>,
    pub(crate) max_batch_tokens: Option<u64>,
}

/// What one partition should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedPartition {
    pub(crate) block_size: NonZeroU32,
    pub(crate) rows: Vec<WantedRow>,
}

/// What the fleet should be.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) partitions: BTreeMap<PartitionId, WantedPartition>,
    /// The workers that take part, by key. How old their reports are is not known here.
    pub(crate) workers: Vec<WorkerStatus>,
    pub(crate) refused: Vec<RefusedRecord>,
}

/// How many workers want a block size, and since when.
type Votes = (usize, Reverse<u64>);

impl Wanted {
    /// The partitions of these workers, without rows. Most workers decide a partition's block size, and the one that
    /// registered first where they are as many: a stray worker must not win when all come back at once after an outage.
    pub(super) fn with_block_sizes<'a>(workers: impl Iterator<Item = &'a Known>) -> Self {
        let mut votes = BTreeMap::<PartitionId, BTreeMap<NonZeroU32, Votes>>::new();
        for known in workers {
            let Some(block_size) = NonZeroU32::new(known.record.block_size) else { continue };
            let sizes = votes.entry(known.record.partition()).or_default();
            let (workers, since) = sizes.entry(block_size).or_insert((0, Reverse(known.created)));
            *workers += 1;
            *since = (*since).max(Reverse(known.created));
        }
        let winner = |(id, sizes): (PartitionId, BTreeMap<NonZeroU32, Votes>)| {
            let (block_size, _) = sizes.into_iter().max_by_key(|(_, votes)| *votes)?;
            Some((id, WantedPartition { block_size, rows: Vec::new() }))
        };
        Self { partitions: votes.into_iter().filter_map(winner).collect(), ..Self::default() }
    }

    pub(super) fn add(&mut self, known: &Known, drain: Option<&DrainSetting>) -> Result<(), String> {
        let record = &known.record;
        let id = record.partition();
        let Some(partition) = self.partitions.get_mut(&id) else {
            return Err("`block_size` is 0".to_owned());
        };
        let (own, agreed) = (record.block_size, partition.block_size);
        if own != agreed.get() {
            return Err(format!(
                "`block_size` is {own}, but the workers of partition {id} have {agreed}: start it with {agreed}"
            ));
        }
        partition.rows.extend(rows(known, drain.is_some()));
        self.workers.push(status(known, id, drain));
        Ok(())
    }
}

fn rows(known: &Known, drained: bool) -> impl Iterator<Item = WantedRow> {
    let record = &known.record;
    let endpoint: Arc<str> = record.endpoint.as_str().into();
    let taints: Arc<[String]> = record.taints.iter().cloned().collect();
    (0..record.ranks).map(move |rank| WantedRow {
        row: Row { worker: record.worker_id, rank: Rank(rank) },
        incarnation: record.incarnation,
        revision: known.revision,
        endpoint: Arc::clone(&endpoint),
        taints: Arc::clone(&taints),
        draining: record.draining || drained,
        kv_events: record.kv_events,
        total_blocks: record.total_blocks,
        max_batch_tokens: record.max_batch_tokens,
    })
}

fn status(known: &Known, partition: PartitionId, drain: Option<&DrainSetting>) -> WorkerStatus {
    let record = &known.record;
    WorkerStatus {
        worker_id: record.worker_id,
        incarnation: record.incarnation,
        endpoint: record.endpoint.as_str().into(),
        partition,
        ranks: record.ranks,
        block_size: record.block_size,
        kv_events: record.kv_events,
        taints: record.taints.iter().cloned().collect(),
        draining: record.draining,
        drained: drain.is_some(),
        drain_reason: drain.map(|drain| drain.reason.as_str().into()),
        registered_revision: known.revision,
        report_age_ms: None,
    }
}
