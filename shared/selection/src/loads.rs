//! A partition's load, for people and metrics.

use crate::{
    partition::Partition,
    registry::LatestReports,
    scheduler::SchedulerState,
    status::{LoadRow, Reported},
};
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
    /// What each of these rows' workers last reported, in the same order.
    pub reports: Vec<Reported>,
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
    pub(crate) fn new(partition: &Partition, state: SchedulerState, latest: &LatestReports) -> Self {
        let SchedulerState { rows, reservations, waiting, policy_health } = state;
        let (id, index) = (partition.id.clone(), partition.index.stats());
        let reports = rows.iter().map(|row| latest.of_row(row.info.row, row.info.incarnation)).collect();
        Self { partition: id, rows, reports, reservations, waiting, policy_health, index }
    }

    /// The rows as they are shown.
    pub fn load_rows(&self) -> impl Iterator<Item = LoadRow> {
        self.rows.iter().zip(&self.reports).map(|(state, report)| LoadRow {
            partition: self.partition.clone(),
            worker_id: state.info.row.worker,
            rank: state.info.row.rank,
            draining: state.info.draining,
            active_requests: state.load.active_requests,
            active_prefill_tokens: state.load.active_prefill_tokens,
            active_blocks: state.load.active_blocks(),
            total_blocks: state.info.total_blocks,
            report: *report,
        })
    }
}
