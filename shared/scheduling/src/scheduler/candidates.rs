//! Turns eligible rows into what the policy reads: only the groups it asked for, in buffers that are used again.

use crate::{
    OverlapIndex, Request, WorkerTable,
    book::{Book, KeptBlock},
};
use switchtower_ids::SequenceHash;
use switchtower_kv::index::{Overlap, RowSlot, TierBlocks};
use switchtower_policy::{
    KvRouterConfig, WorkerCacheInput, WorkerCandidate, WorkerInputs, WorkerLoadInput, WorkerSelectionContext,
    host::{self, CacheWeights, ContextBuilder},
};

/// Where the signals come from.
#[derive(Clone, Copy)]
pub(super) struct Fleet<'a> {
    pub(super) table: &'a WorkerTable,
    pub(super) columns: &'a [usize],
    pub(super) book: &'a Book,
    pub(super) index: &'a dyn OverlapIndex,
}

/// What the signals are about.
pub(super) struct Asked<'a> {
    pub(super) request: &'a Request,
    pub(super) context: &'a WorkerSelectionContext<'a>,
    pub(super) kept: &'a [KeptBlock],
}

/// The rows of one decision, and the buffers behind them.
pub(super) struct Candidates {
    pub(super) rows: Vec<WorkerCandidate>,
    weights: CacheWeights,
    preferred_taint_multiplier: f64,
    overlap: Overlap,
    shared: Vec<u64>,
}

/// The request as a policy sees it.
pub(super) fn context(request: &Request, block_size: u32) -> WorkerSelectionContext<'_> {
    ContextBuilder::new(request.prompt_tokens, block_size)
        .expected_output_tokens(request.expected_output_tokens)
        .session(request.session.as_deref())
        .priority(request.priority)
        .pinned_worker(request.constraints.pin.map(|pin| pin.worker.0))
        .build()
}

impl Candidates {
    pub(super) fn new(config: &KvRouterConfig) -> Self {
        Self {
            rows: Vec::new(),
            weights: CacheWeights::from(config),
            preferred_taint_multiplier: config.preferred_taint_multiplier,
            overlap: Overlap::default(),
            shared: Vec::new(),
        }
    }

    /// Fills `rows` with the candidates at `eligible`. Overlap is always looked up, because booking needs it.
    pub(super) fn build(
        &mut self,
        inputs: WorkerInputs,
        fleet: Fleet<'_>,
        asked: &Asked<'_>,
        eligible: &[usize],
    ) {
        self.query(fleet.index, &asked.request.blocks);
        if inputs.contains(WorkerInputs::LOAD) {
            fleet.book.shared_blocks(asked.kept, &mut self.shared);
        }
        self.rows.clear();
        for &position in eligible {
            let info = &fleet.table.rows()[position];
            let mut row = host::candidate(info.row.worker.0, info.row.rank.0);
            if inputs.contains(WorkerInputs::CACHE) {
                row = row.with_cache(self.cache(info.slot));
            }
            if inputs.contains(WorkerInputs::LOAD) {
                row = row.with_load(self.load(fleet, asked, fleet.columns[position]));
            }
            if inputs.contains(WorkerInputs::ROUTING) {
                // A worker's taints are few; what a caller prefers may be many.
                let preferred = &asked.request.constraints.preferred_taints;
                let matches = info.taints.iter().filter(|own| preferred.binary_search(own).is_ok()).count();
                let matches = i32::try_from(matches).unwrap_or(i32::MAX);
                row = row.with_preferred_taint_multiplier(self.preferred_taint_multiplier.powi(matches));
            }
            self.rows.push(row);
        }
    }

    fn load(&self, fleet: Fleet<'_>, asked: &Asked<'_>, column: usize) -> WorkerLoadInput {
        let load = fleet.book.load_at(column);
        let prefill_tokens = load.active_prefill_tokens.saturating_add(asked.request.prompt_tokens);
        let raw_prefill_blocks = prefill_tokens as f64 / f64::from(asked.context.block_size());
        let added = (asked.request.blocks.len() as u64).saturating_sub(self.shared[column]);
        let decode_cost_blocks = (load.active_blocks() + added) as f64;
        host::load(raw_prefill_blocks, load.active_prefill_tokens, decode_cost_blocks, load.active_requests)
    }

    fn cache(&self, slot: RowSlot) -> WorkerCacheInput {
        let TierBlocks { device, host, disk } = self.tiers(slot);
        self.weights.input(f64::from(device), f64::from(host), f64::from(disk))
    }

    /// Looks up the prompt's cached blocks on all rows.
    pub(super) fn query(&mut self, index: &dyn OverlapIndex, blocks: &[SequenceHash]) {
        index.overlap(blocks, &mut self.overlap);
    }

    /// The last query's result for one row.
    pub(super) fn tiers(&self, slot: RowSlot) -> TierBlocks {
        self.overlap.blocks(slot)
    }

    /// The last query's result for one row, and the prompt tokens that booking takes for cached: effective blocks ×
    /// block size, rounded, and at most the prompt less one token, because an engine computes at least that one.
    pub(super) fn overlap_of(&self, slot: RowSlot, prompt_tokens: u64, block_size: u32) -> (TierBlocks, u64) {
        let effective = self.cache(slot).effective() * f64::from(block_size);
        let cached_tokens = (effective.round() as u64).min(prompt_tokens.saturating_sub(1));
        (self.tiers(slot), cached_tokens)
    }
}
