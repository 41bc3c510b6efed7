//! The partitions that exist, made when their first worker comes, and the index columns of their rows.

use super::fleet::{WantedPartition, WantedRow};
use crate::{
    assumed::Assumptions,
    clock::ServiceClock,
    index::SharedIndex,
    options::SelectionOptions,
    partition::{KeySource, Partition},
    scheduler::{SchedulerParts, StartIn, start},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    sync::Arc,
};
use switchtower_ids::{Incarnation, PartitionId, Row};
use switchtower_kv::index::RowSlot;
use switchtower_policy::{KvRouterConfig, WorkerSelectionPolicyFactory};
use switchtower_runtime::{CancellationToken, TaskGroup};
use switchtower_scheduling::{RowInfo, policy_host::PolicyParts};

/// Makes partitions.
pub(crate) struct PartitionFactory {
    pub(crate) config: Arc<KvRouterConfig>,
    pub(crate) factory: Arc<dyn WorkerSelectionPolicyFactory>,
    pub(crate) fallback: Arc<dyn WorkerSelectionPolicyFactory>,
    pub(crate) clock: ServiceClock,
    pub(crate) keys: Arc<KeySource>,
    pub(crate) options: SelectionOptions,
    pub(crate) tasks: TaskGroup,
    pub(crate) stop: CancellationToken,
}

impl PartitionFactory {
    pub(super) fn make(&self, id: &PartitionId, block_size: NonZeroU32) -> PartitionRows {
        let policy = PolicyParts {
            config: Arc::clone(&self.config),
            partition: id.clone(),
            factory: Arc::clone(&self.factory),
            fallback: Arc::clone(&self.fallback),
            clock: Box::new(self.clock),
        };
        let index = SharedIndex::default();
        let tasks = StartIn { group: self.tasks.clone(), stop: self.stop.clone(), name: id.to_string() };
        let parts = SchedulerParts { block_size, policy, index: index.clone(), clock: self.clock };
        let scheduler = start(parts, &self.options, &tasks);
        let partition = Partition {
            id: id.clone(),
            block_size,
            scheduler,
            assumptions: Assumptions::new(index.clone(), self.options.assumed.clone()),
            index,
            clock: self.clock,
            keys: Arc::clone(&self.keys),
            inhibition: self.options.inhibition,
        };
        let (rows, without_events, slots) = (Vec::new(), BTreeMap::new(), Slots::default());
        PartitionRows { partition: Arc::new(partition), rows, without_events, slots, emptied: 0 }
    }
}

/// Partitions without workers that are remembered; a worker that comes back soon finds the books it left.
const EMPTY_MAX: usize = 64;

/// Forgets the partitions that lost their workers longest ago and that nobody has a reservation in: names of models come
/// from workers, who could make up any number of them.
pub(super) fn forget_empty(partitions: &mut BTreeMap<PartitionId, PartitionRows>) {
    let is_empty = |existing: &PartitionRows| existing.rows.is_empty();
    let mut empty: Vec<_> = partitions
        .iter()
        .filter(|(_, existing)| is_empty(existing))
        .map(|(id, existing)| (existing.emptied, id.clone(), existing.is_idle()))
        .collect();
    empty.sort_unstable();
    let surplus = empty.len().saturating_sub(EMPTY_MAX);
    for (_, id, _) in empty.into_iter().filter(|(.., idle)| *idle).take(surplus) {
        partitions.remove(&id);
    }
}

/// One partition with its rows as they were last handed to its scheduler.
pub(super) struct PartitionRows {
    pub(super) partition: Arc<Partition>,
    pub(super) rows: Vec<RowInfo>,
    /// Those of them that have no KV event log, and their lives.
    without_events: BTreeMap<Row, Incarnation>,
    slots: Slots,
    /// In which round of reconciling it lost its last row.
    emptied: u64,
}

impl PartitionRows {
    /// Makes the rows what they should be, in this `round` of reconciling, and tells the scheduler.
    pub(super) fn update(&mut self, wanted: &[WantedRow], round: u64) {
        let present: BTreeSet<Row> = wanted.iter().map(|row| row.row).collect();
        for slot in self.slots.retain(&present) {
            self.partition.index.drop_row(slot);
        }
        let rows: Vec<RowInfo> = wanted.iter().map(|row| self.slots.row_info(row)).collect();
        let without_events = wanted.iter().filter(|row| !row.kv_events);
        let without_events = without_events.map(|row| (row.row, row.incarnation)).collect();
        if rows == self.rows && without_events == self.without_events {
            return;
        }
        self.without_events = without_events;
        self.partition.assumptions.follow(rows.iter().map(|info| (info, self.has_events(info.row))));
        if rows.is_empty() {
            self.emptied = round;
        }
        self.partition.scheduler.set_rows(rows.clone());
        self.rows = rows;
    }

    /// Whether the row has a KV event log.
    pub(super) fn has_events(&self, row: Row) -> bool {
        !self.without_events.contains_key(&row)
    }

    /// The life of a row that has no KV event log.
    pub(super) fn life_without_events(&self, row: Row) -> Option<Incarnation> {
        self.without_events.get(&row).copied()
    }

    /// Whether only the registry and its view hold the partition: no reservation does, and no request is on its way.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.partition) <= 2
    }

    /// Whether `wanted` can be served with this partition's index and hashes.
    pub(super) fn fits(&self, wanted: &WantedPartition) -> bool {
        self.partition.block_size == wanted.block_size
    }
}

/// Columns of the index, given to rows and taken back.
#[derive(Default)]
struct Slots {
    taken: BTreeMap<Row, RowSlot>,
    free: Vec<RowSlot>,
    next: u32,
}

impl Slots {
    /// Takes back the columns of all rows that are not `present`, and returns them.
    fn retain(&mut self, present: &BTreeSet<Row>) -> Vec<RowSlot> {
        let mut dropped = Vec::new();
        self.taken.retain(|row, slot| {
            let stays = present.contains(row);
            if !stays {
                dropped.push(*slot);
            }
            stays
        });
        self.free.extend(&dropped);
        dropped
    }

    fn row_info(&mut self, wanted: &WantedRow) -> RowInfo {
        RowInfo {
            row: wanted.row,
            slot: self.slot(wanted.row),
            incarnation: wanted.incarnation,
            revision: wanted.revision,
            endpoint: Arc::clone(&wanted.endpoint),
            taints: Arc::clone(&wanted.taints),
            draining: wanted.draining,
            total_blocks: wanted.total_blocks,
            max_batch_tokens: wanted.max_batch_tokens,
        }
    }

    fn slot(&mut self, row: Row) -> RowSlot {
        let Self { taken, free, next } = self;
        *taken.entry(row).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                *next += 1;
                RowSlot(*next - 1)
            })
        })
    }
}
