//! The rows of one partition, sorted by (worker, rank) so that decisions repeat.

use std::{ops::Range, sync::Arc};
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

/// A report, and when it came.
#[derive(Clone, Copy, Debug)]
struct Received {
    report: RowReport,
    at_ms: u64,
}

/// The rows, and what their workers last reported.
#[derive(Clone, Debug, Default)]
pub struct WorkerTable {
    rows: Vec<RowInfo>,
    reports: Vec<Option<Received>>,
    /// No report is stale earlier.
    stale_ms: Option<u64>,
}

impl WorkerTable {
    /// How long a report counts. After that its row is unknown again: what a worker said before it fell silent must
    /// neither keep requests away for ever nor attract them.
    pub const REPORT_LIFE_MS: u64 = 15_000;

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
        Self { rows, reports, stale_ms: previous.stale_ms }
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
        &self.rows[self.positions_of(worker)]
    }

    /// Where the rows of `worker` are.
    #[must_use]
    pub fn positions_of(&self, worker: WorkerId) -> Range<usize> {
        let start = self.rows.partition_point(|info| info.row.worker < worker);
        let end = self.rows.partition_point(|info| info.row.worker <= worker);
        start..end
    }

    /// Takes in a worker's report of one rank, received at `now_ms`; one of another life is ignored.
    pub fn report(&mut self, now_ms: u64, row: Row, incarnation: Incarnation, report: RowReport) {
        if let Some(index) = self.find(row)
            && self.rows[index].incarnation == incarnation
        {
            self.reports[index] = Some(Received { report, at_ms: now_ms });
            self.stale_ms.get_or_insert(now_ms.saturating_add(Self::REPORT_LIFE_MS));
        }
    }

    /// Forgets the reports whose time is over at `now_ms`; returns whose they were.
    pub fn forget_stale_reports(&mut self, now_ms: u64) -> Vec<Row> {
        if self.stale_ms.is_none_or(|stale_ms| stale_ms > now_ms) {
            return Vec::new();
        }
        let mut forgotten = Vec::new();
        self.stale_ms = None;
        for (info, report) in self.rows.iter().zip(&mut self.reports) {
            let Some(received) = report else { continue };
            let stale_ms = received.at_ms.saturating_add(Self::REPORT_LIFE_MS);
            if stale_ms <= now_ms {
                *report = None;
                forgotten.push(info.row);
            } else {
                self.stale_ms = Some(self.stale_ms.map_or(stale_ms, |earliest| earliest.min(stale_ms)));
            }
        }
        forgotten
    }

    /// When to look for stale reports next; may be too early, never too late.
    #[must_use]
    pub const fn next_stale_ms(&self) -> Option<u64> {
        self.stale_ms
    }

    /// The last report of the row at `index`.
    #[must_use]
    pub fn last_report(&self, index: usize) -> Option<RowReport> {
        self.reports.get(index).copied().flatten().map(|received| received.report)
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
        table.report(0, Row::new(1, 0), Incarnation(99), report);
        assert_eq!(table.last_report(0), None);
        table.report(0, Row::new(1, 0), Incarnation(1), report);
        let same = WorkerTable::replace(vec![info(1, 0)], &table);
        assert_eq!(same.last_report(0), Some(report));
        let restarted =
            WorkerTable::replace(vec![RowInfo { incarnation: Incarnation(5), ..info(1, 0) }], &table);
        assert_eq!(restarted.last_report(0), None);
    }
    #[test]
    fn b76_a_report_counts_for_its_time_and_then_its_row_is_unknown() {
        let mut table = WorkerTable::replace(vec![info(1, 0), info(2, 0)], &WorkerTable::default());
        let report = RowReport { blocks_used: 1, blocks_total: 2 };
        table.report(0, Row::new(1, 0), Incarnation(1), report);
        table.report(5, Row::new(2, 0), Incarnation(1), report);
        let life_ms = WorkerTable::REPORT_LIFE_MS;
        assert_eq!(table.next_stale_ms(), Some(life_ms));
        assert_eq!(table.forget_stale_reports(life_ms - 1), []);
        assert_eq!(table.forget_stale_reports(life_ms), [Row::new(1, 0)]);
        assert_eq!((table.last_report(0), table.last_report(1)), (None, Some(report)));
        table.report(6, Row::new(2, 0), Incarnation(1), report);
        assert_eq!(table.forget_stale_reports(life_ms + 5), [], "a newer one has taken its place");
        assert_eq!(table.forget_stale_reports(life_ms + 6), [Row::new(2, 0)]);
        assert_eq!(table.next_stale_ms(), None);
    }
}
