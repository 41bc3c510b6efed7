//! Turns eligible rows into what the policy reads: only the groups it asked for, in buffers that are used again.
//!
//! A row's overlap is what the index knows it holds, and what it is about to hold: blocks of the prompt that are booked
//! there count as blocks on the device, because the requests in front compute them before this one's turn comes. Without
//! that, requests with a common prefix that arrive within one prefill of each other would be spread, and computed, over
//! the whole fleet.

use crate::{
    OverlapIndex, Request, RowInfo, WorkerTable,
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
    /// Column in the book → blocks of the prompt that are booked there.
    booked: Vec<u64>,
    /// Rows that will hold more than the index knows, with the blocks that are on their way.
    awaited: Vec<(RowSlot, u32)>,
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
            booked: Vec::new(),
            awaited: Vec::new(),
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
        fleet.book.shared_blocks(asked.kept, &mut self.booked);
        self.awaited.clear();
        self.rows.clear();
        for &position in eligible {
            let info = &fleet.table.rows()[position];
            let column = fleet.columns[position];
            let awaited = self.awaited_blocks(info.slot, column);
            let mut row = host::candidate(info.row.worker.0, info.row.rank.0);
            if inputs.contains(WorkerInputs::CACHE) {
                row = row.with_cache(self.cache(info.slot, awaited));
            }
            if inputs.contains(WorkerInputs::LOAD) {
                row = row.with_load(self.load(fleet, asked, column));
            }
            if inputs.contains(WorkerInputs::ROUTING) {
                row = row.with_preferred_taint_multiplier(self.multiplier(asked, info));
            }
            self.rows.push(row);
        }
    }

    /// How many more blocks of the prompt are booked in `column` than the index knows of `slot`; notes it if there are any.
    fn awaited_blocks(&mut self, slot: RowSlot, column: usize) -> u32 {
        // Nothing is booked there for nearly every row.
        if self.booked[column] == 0 {
            return 0;
        }
        let booked = u32::try_from(self.booked[column]).unwrap_or(u32::MAX);
        let awaited = booked.saturating_sub(self.tiers(slot).total());
        if awaited > 0 {
            self.awaited.push((slot, awaited));
        }
        awaited
    }

    fn multiplier(&self, asked: &Asked<'_>, info: &RowInfo) -> f64 {
        // A worker's taints are few; what a caller prefers may be many.
        let preferred = &asked.request.constraints.preferred_taints;
        let matches = info.taints.iter().filter(|own| preferred.binary_search(own).is_ok()).count();
        self.preferred_taint_multiplier.powi(i32::try_from(matches).unwrap_or(i32::MAX))
    }

    fn load(&self, fleet: Fleet<'_>, asked: &Asked<'_>, column: usize) -> WorkerLoadInput {
        let load = fleet.book.load_at(column);
        let prefill_tokens = load.active_prefill_tokens.saturating_add(asked.request.prompt_tokens);
        let raw_prefill_blocks = prefill_tokens as f64 / f64::from(asked.context.block_size());
        let added = (asked.request.blocks.len() as u64).saturating_sub(self.booked[column]);
        let decode_cost_blocks = (load.active_blocks() + added) as f64;
        host::load(raw_prefill_blocks, load.active_prefill_tokens, decode_cost_blocks, load.active_requests)
    }

    fn cache(&self, slot: RowSlot, awaited: u32) -> WorkerCacheInput {
        let TierBlocks { device, host, disk } = self.tiers(slot);
        self.weights.input(f64::from(device) + f64::from(awaited), f64::from(host), f64::from(disk))
    }

    /// Looks up the prompt's cached blocks on all rows.
    pub(super) fn query(&mut self, index: &dyn OverlapIndex, blocks: &[SequenceHash]) {
        index.overlap(blocks, &mut self.overlap);
    }

    /// The last query's result for one row.
    pub(super) fn tiers(&self, slot: RowSlot) -> TierBlocks {
        self.overlap.blocks(slot)
    }

    /// The last query's result for one row, and the prompt tokens that booking takes for cached: effective blocks, those
    /// on their way included, × block size, rounded, and at most the prompt less one token, because an engine computes at
    /// least that one.
    pub(super) fn overlap_of(&self, slot: RowSlot, prompt_tokens: u64, block_size: u32) -> (TierBlocks, u64) {
        let awaited = self.awaited.iter().find(|row| row.0 == slot).map_or(0, |row| row.1);
        let effective = self.cache(slot, awaited).effective() * f64::from(block_size);
        let cached_tokens = (effective.round() as u64).min(prompt_tokens.saturating_sub(1));
        (self.tiers(slot), cached_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        book::{Booked, Entry, Log, kept_blocks},
        testing::{info, key, request},
    };
    use switchtower_ids::Tier;
    use switchtower_kv::event::KvEvent;
    use switchtower_kv::index::PrefixIndex;

    /// Worker 1 holds three blocks of a prompt of 40, which is booked on it and on worker 2; worker 3 knows nothing of it.
    /// The candidates for the same prompt with four blocks more.
    fn built(inputs: WorkerInputs) -> (Candidates, Request) {
        let table =
            WorkerTable::replace([1, 2, 3].map(|worker| info(worker, 0)).into(), &WorkerTable::default());
        let wanted = Request { prompt_tokens: 44 * 16, ..request(9, 44) };
        let (mut book, mut log, mut index) = (Book::default(), Log::default(), PrefixIndex::default());
        book.set_lives(table.rows().iter().map(|info| (info.row, info.life())));
        for info in &table.rows()[..2] {
            let entry = Entry::Booked(Booked {
                key: key(info.row.worker.0),
                attempt: 1,
                row: info.row,
                life: info.life(),
                prefill_tokens: 640,
                blocks: kept_blocks(&wanted.blocks[..40]).into(),
                expected_output_tokens: None,
                alias: None,
            });
            book.apply(0, &log.append(entry)).unwrap();
        }
        let blocks = wanted.blocks[..3].to_vec();
        index.apply(RowSlot(10), &KvEvent::Stored { tier: Tier::Host, parent: None, blocks }).unwrap();
        let columns: Vec<_> = table.rows().iter().map(|info| book.column(info.row).unwrap()).collect();
        let mut candidates = Candidates::new(&KvRouterConfig::default());
        let fleet = Fleet { table: &table, columns: &columns, book: &book, index: &index };
        let (context, kept) = (context(&wanted, 16), kept_blocks(&wanted.blocks));
        let asked = Asked { request: &wanted, context: &context, kept: &kept };
        candidates.build(inputs, fleet, &asked, &[0, 1, 2]);
        (candidates, wanted.clone())
    }

    #[test]
    fn blocks_that_are_booked_on_a_row_count_as_on_their_way_to_its_device() {
        let (candidates, _) = built(WorkerInputs::CACHE);
        // The common kept depths are 16 and 32; three of those 32 are there already, in host memory.
        let expected = [(1, 29.0, 3.0), (2, 32.0, 0.0), (3, 0.0, 0.0)].map(|(worker, device, on_host)| {
            host::candidate(worker, 0).with_cache(host::cache(device, on_host, 0.0))
        });
        assert_eq!(candidates.rows, expected);
    }

    #[test]
    fn booking_takes_them_for_cached_and_the_overlap_that_is_told_is_the_index_s() {
        let (candidates, wanted) = built(WorkerInputs::NONE);
        let told = |slot| candidates.overlap_of(RowSlot(slot), wanted.prompt_tokens, 16);
        assert_eq!(told(10), (TierBlocks { host: 3, ..TierBlocks::default() }, 29 * 16 + 36));
        assert_eq!(told(20), (TierBlocks::default(), 32 * 16));
        assert_eq!(told(30), (TierBlocks::default(), 0));
    }
}
