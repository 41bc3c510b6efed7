//! Columns that own their numbers: for rows that are not the host's whole table, and for tests, which think in rows.

use super::build::columns;
use crate::{
    CacheColumns, CandidateColumns, Column, LoadColumns, WorkerCandidate, WorkerIdentity, WorkerInputs,
};

/// Rows of one decision, in columns that are used again.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    filled: WorkerInputs,
    workers: Vec<WorkerIdentity>,
    cache: Cache,
    load: Load,
    multipliers: Vec<f64>,
}

#[derive(Clone, Debug, Default)]
struct Cache {
    effective: Vec<f64>,
    device: Vec<f64>,
    host: Vec<f64>,
    disk: Vec<f64>,
    shared: Vec<f64>,
}

#[derive(Clone, Debug, Default)]
struct Load {
    raw_prefill_blocks: Vec<f64>,
    active_prefill_tokens: Vec<u64>,
    decode_cost_blocks: Vec<f64>,
    active_requests: Vec<u64>,
}

impl Rows {
    /// The rows of `all` at `positions`, in place of those that were here.
    pub fn gather(&mut self, all: &CandidateColumns<'_>, positions: &[usize]) {
        self.replace(all.visible, positions.iter().map(|row| all.candidate(*row)));
    }

    fn replace(&mut self, filled: WorkerInputs, rows: impl Iterator<Item = WorkerCandidate>) {
        let Self { workers, cache, load, multipliers, .. } = self;
        workers.clear();
        let Cache { effective, device, host, disk, shared } = cache;
        let Load { raw_prefill_blocks, active_prefill_tokens, decode_cost_blocks, active_requests } = load;
        let blocks = [effective, device, host, disk, shared, raw_prefill_blocks, decode_cost_blocks];
        blocks.into_iter().chain([multipliers]).for_each(Vec::clear);
        [active_prefill_tokens, active_requests].into_iter().for_each(Vec::clear);
        self.filled = filled;
        rows.for_each(|row| self.push(&row));
    }

    fn push(&mut self, row: &WorkerCandidate) {
        let Self { workers, cache, load, multipliers, .. } = self;
        workers.push(row.worker);
        cache.effective.push(row.cache.effective);
        cache.device.push(row.cache.device);
        cache.host.push(row.cache.host);
        cache.disk.push(row.cache.disk);
        cache.shared.push(row.cache.shared);
        load.raw_prefill_blocks.push(row.load.raw_prefill_blocks);
        load.active_prefill_tokens.push(row.load.active_prefill_tokens);
        load.decode_cost_blocks.push(row.load.decode_cost_blocks);
        load.active_requests.push(row.load.active_requests);
        multipliers.push(row.preferred_taint_multiplier);
    }

    /// The rows as a policy's host takes them.
    #[must_use]
    pub fn columns(&self) -> CandidateColumns<'_> {
        let Self { filled, workers, cache, load, multipliers } = self;
        let all = columns(workers)
            .with_cache(CacheColumns {
                effective: &cache.effective,
                device: &cache.device,
                host: Column::Each(&cache.host),
                disk: Column::Each(&cache.disk),
                shared: Column::Each(&cache.shared),
            })
            .with_load(LoadColumns {
                raw_prefill_blocks: &load.raw_prefill_blocks,
                active_prefill_tokens: &load.active_prefill_tokens,
                decode_cost_blocks: &load.decode_cost_blocks,
                active_requests: &load.active_requests,
            })
            .with_preferred_taint_multipliers(Column::Each(multipliers));
        all.show(*filled)
    }
}

impl From<&[WorkerCandidate]> for Rows {
    fn from(candidates: &[WorkerCandidate]) -> Self {
        let mut rows = Self::default();
        rows.replace(WorkerInputs::ALL, candidates.iter().copied());
        rows
    }
}
