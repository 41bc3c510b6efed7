//! The last load report of every row, for people to see; the schedulers keep what they decide by.
//!
//! Written by the registry's task, read by whoever asks. As large as the fleet.

use crate::{
    clock::ServiceClock,
    status::{ReportStatus, Reported},
    wire::RankLoad,
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use switchtower_ids::{Incarnation, Rank, Row, WorkerId};
use switchtower_scheduling::WorkerTable;

struct Latest {
    incarnation: Incarnation,
    load: RankLoad,
    at_ms: u64,
}

/// See the [module](self). Clones share it.
#[derive(Clone)]
pub(crate) struct LatestReports {
    clock: ServiceClock,
    rows: Arc<Mutex<HashMap<Row, Latest>>>,
}

impl LatestReports {
    pub(crate) fn new(clock: ServiceClock) -> Self {
        Self { clock, rows: Arc::default() }
    }

    /// A report of a row in this life came, the newest so far.
    pub(super) fn note(&self, row: Row, incarnation: Incarnation, load: &RankLoad) {
        let latest = Latest { incarnation, load: *load, at_ms: self.clock.now_ms() };
        self.rows.lock().insert(row, latest);
    }

    /// Forgets the rows that are gone.
    pub(super) fn retain(&self, keep: impl Fn(Row) -> bool) {
        self.rows.lock().retain(|row, _| keep(*row));
    }

    /// The report of a row in this life, unless it is so old that it does not count any more.
    pub(crate) fn of_row(&self, row: Row, incarnation: Incarnation) -> Reported {
        let rows = self.rows.lock();
        let latest = rows.get(&row).filter(|latest| latest.incarnation == incarnation);
        let counts = latest.and_then(|latest| Some((latest, self.age_ms(latest)?)));
        counts.map_or(Reported::Unknown, |(Latest { load, .. }, age_ms)| {
            Reported::Known(ReportStatus {
                age_ms,
                running: load.running,
                waiting: load.waiting,
                blocks_used: load.blocks_used,
                blocks_total: load.blocks_total,
                prefill_tokens: load.prefill_tokens,
            })
        })
    }

    /// The age of the newest report of a worker with so many ranks in this life, in milliseconds.
    pub(crate) fn age_of_worker(
        &self,
        worker: WorkerId,
        ranks: u32,
        incarnation: Incarnation,
    ) -> Option<u64> {
        let rows = self.rows.lock();
        let own = (0..ranks).filter_map(|rank| rows.get(&Row { worker, rank: Rank(rank) }));
        let own = own.filter(|latest| latest.incarnation == incarnation);
        own.filter_map(|latest| self.age_ms(latest)).min()
    }

    fn age_ms(&self, latest: &Latest) -> Option<u64> {
        let age_ms = self.clock.now_ms().saturating_sub(latest.at_ms);
        (age_ms < WorkerTable::REPORT_LIFE_MS).then_some(age_ms)
    }
}
