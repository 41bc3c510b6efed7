//! The rows of one partition, sorted by (worker, rank) so that decisions repeat.

use std::sync::Arc;
use switchtower_ids::{Incarnation, Life, Rank, Row, WorkerId};
use switchtower_kv::index::RowSlot;

/// One (worker, rank) that the registry knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowInfo {
    /// Who.
    pub row: Row,
    /// Its column in the prefix index.
    pub slot: RowSlot,
    /// The worker's life.
    pub incarnation: Incarnation,
    /// Store revision of its registration.
    pub revision: u64,
    /// Base URL of the worker.
    pub endpoint: Arc<str>,
    /// The worker's taints, sorted.
    pub taints: Arc<[String]>,
    /// Whether it takes no new requests.
    pub draining: bool,
    /// KV blocks of the rank, where known.
    pub total_blocks: Option<u64>,
    /// Tokens the rank processes in one step, where known.
    pub max_batch_tokens: Option<u64>,
}

impl RowInfo {
    /// The worker's life, as the book orders them.
    #[must_use]
    pub const fn life(&self) -> Life {
        Life { incarnation: self.incarnation, revision: self.revision }
    }

    /// Whether the worker has `taint`.
    #[must_use]
    pub fn has_taint(&self, taint: &str) -> bool {
        self.taints.binary_search_by(|own| own.as_str().cmp(taint)).is_ok()
    }
}

/// What a worker's own report says of one rank. No report is its own state: unknown, neither idle nor full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowReport {
    /// KV blocks held by running requests.
    pub blocks_used: u64,
    /// All KV blocks.
    pub blocks_total: u64,
}

/// The rows, and what their workers last reported.
#[derive(Clone, Debug, Default)]
pub struct WorkerTable {
    rows: Vec<RowInfo>,
    reports: Vec<Option<RowReport>>,
}

impl WorkerTable {
    /// A table of `rows` in any order. Reports of rows that stay in the same life are kept from `previous`.
    #[must_use]
    pub fn replace(mut rows: Vec<RowInfo>, previous: &Self) -> Self {
        rows.sort_by_key(|info| info.row);
        rows.dedup_by_key(|info| info.row);
        let kept = |info: &RowInfo| {
            let index = previous.find(info.row)?;
            (previous.rows[index].incarnation == info.incarnation).then(|| previous.reports[index])?
        };
        let reports = rows.iter().map(kept).collect();
        Self { rows, reports }
    }

    /// The rows in order.
    #[must_use]
    pub fn rows(&self) -> &[RowInfo] {
        &self.rows
    }

    /// Position of `row`.
    #[must_use]
    pub fn find(&self, row: Row) -> Option<usize> {
        self.rows.binary_search_by_key(&row, |info| info.row).ok()
    }

    /// The rows of `worker`.
    #[must_use]
    pub fn of_worker(&self, worker: WorkerId) -> &[RowInfo] {
        let start = self.rows.partition_point(|info| info.row.worker < worker);
        let end = self.rows.partition_point(|info| info.row.worker <= worker);
        &self.rows[start..end]
    }

    /// Takes in a worker's report of one rank; one of another life is ignored.
    pub fn report(&mut self, row: Row, incarnation: Incarnation, report: RowReport) {
        if let Some(index) = self.find(row)
            && self.rows[index].incarnation == incarnation
        {
            self.reports[index] = Some(report);
        }
    }

    /// The last report of the row at `index`.
    #[must_use]
    pub fn last_report(&self, index: usize) -> Option<RowReport> {
        self.reports.get(index).copied().flatten()
    }

    /// Whether `worker` has the rank.
    #[must_use]
    pub fn has_rank(&self, worker: WorkerId, rank: Rank) -> bool {
        self.find(Row { worker, rank }).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::info;

    #[test]
    fn rows_are_sorted_and_found() {
        let table = WorkerTable::replace(vec![info(2, 1), info(1, 0), info(2, 0)], &WorkerTable::default());
        assert_eq!(
            table.rows().iter().map(|info| info.row.to_string()).collect::<Vec<_>>(),
            ["1/0", "2/0", "2/1"]
        );
        assert_eq!(table.of_worker(WorkerId(2)).len(), 2);
        assert_eq!(table.of_worker(WorkerId(3)).len(), 0);
        assert!(table.has_rank(WorkerId(2), Rank(1)) && !table.has_rank(WorkerId(1), Rank(1)));
    }

    #[test]
    fn reports_belong_to_a_life() {
        let mut table = WorkerTable::replace(vec![info(1, 0)], &WorkerTable::default());
        let report = RowReport { blocks_used: 1, blocks_total: 2 };
        table.report(Row::new(1, 0), Incarnation(99), report);
        assert_eq!(table.last_report(0), None);
        table.report(Row::new(1, 0), Incarnation(1), report);
        let same = WorkerTable::replace(vec![info(1, 0)], &table);
        assert_eq!(same.last_report(0), Some(report));
        let restarted =
            WorkerTable::replace(vec![RowInfo { incarnation: Incarnation(5), ..info(1, 0) }], &table);
        assert_eq!(restarted.last_report(0), None);
    }
}
