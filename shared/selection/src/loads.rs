//! A partition's load, for people and metrics.

use crate::{partition::Partition, scheduler::SchedulerState};
use switchtower_ids::PartitionId;
use switchtower_kv::index::IndexStats;
use switchtower_scheduling::{RowState, policy_host::PolicyHealth};

/// What is booked in one partition.
#[derive(Clone, Debug)]
pub struct PartitionLoads {
    /// The partition.
    pub partition: PartitionId,
    /// Its rows in order.
    pub rows: Vec<RowState>,
    /// Live reservations.
    pub reservations: usize,
    /// Waiting requests.
    pub waiting: usize,
    /// How its policy does.
    pub policy_health: PolicyHealth,
    /// What its index holds.
    pub index: IndexStats,
}

impl PartitionLoads {
    pub(crate) fn new(partition: &Partition, state: SchedulerState) -> Self {
        let SchedulerState { rows, reservations, waiting, policy_health } = state;
        let (id, index) = (partition.id.clone(), partition.index.stats());
        Self { partition: id, rows, reservations, waiting, policy_health, index }
    }
}
