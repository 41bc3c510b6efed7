//! Turns eligible rows into what the policy reads: only the groups it asked for, in buffers that are used again.
//!
//! A row's overlap is what the index knows it holds, and what it is about to hold: blocks of the prompt that are booked
//! there count as blocks on the device, because the requests in front compute them before this one's turn comes. Without
//! that, requests with a common prefix that arrive within one prefill of each other would be spread, and computed, over
//! the whole fleet.

use crate::{
    OverlapIndex, Request, WorkerTable,
    book::{Book, KeptBlock, RowLoad},
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
        let Self { rows, weights, overlap, booked, awaited, .. } = self;
        let (infos, booked, sizes) = (fleet.table.rows(), booked.as_slice(), Sizes::of(asked));
        let (with_cache, no_cache) = (inputs.contains(WorkerInputs::CACHE), WorkerCacheInput::default());
        let (with_load, no_load) = (inputs.contains(WorkerInputs::LOAD), WorkerLoadInput::default());
        rows.clear();
        awaited.clear();
        rows.extend(eligible.iter().map(|&position| {
            let info = &infos[position];
            let column = fleet.columns[position];
            let (booked, tiers) = (booked[column], overlap.blocks(info.slot));
            let on_their_way = awaited_blocks(booked, tiers);
            if on_their_way > 0 {
                awaited.push((info.slot, on_their_way));
            }
            // One expression, so that the row is written once, where it stays.
            host::candidate(info.row.worker.0, info.row.rank.0)
                .with_cache(if with_cache { cache(*weights, tiers, on_their_way) } else { no_cache })
                .with_load(if with_load { sizes.load(fleet.book.load_at(column), booked) } else { no_load })
        }));
        if inputs.contains(WorkerInputs::ROUTING) && !asked.request.constraints.preferred_taints.is_empty() {
            self.add_multipliers(fleet, asked, eligible);
        }
    }

    fn add_multipliers(&mut self, fleet: Fleet<'_>, asked: &Asked<'_>, eligible: &[usize]) {
        for (row, position) in self.rows.iter_mut().zip(eligible) {
            let info = &fleet.table.rows()[*position];
            // A worker's taints are few; what a caller prefers may be many, and is sorted.
            let preferred = &asked.request.constraints.preferred_taints;
            let matches = info.taints.iter().filter(|own| preferred.binary_search(own).is_ok()).count();
            let matches = i32::try_from(matches).unwrap_or(i32::MAX);
            *row = row.with_preferred_taint_multiplier(self.preferred_taint_multiplier.powi(matches));
        }
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
        let tiers = self.tiers(slot);
        let awaited = self.awaited.iter().find(|row| row.0 == slot).map_or(0, |row| row.1);
        let effective = cache(self.weights, tiers, awaited).effective() * f64::from(block_size);
        let cached_tokens = (effective.round() as u64).min(prompt_tokens.saturating_sub(1));
        (tiers, cached_tokens)
    }
}

/// How many more blocks of the prompt are booked on a row than the index knows of.
#[inline]
fn awaited_blocks(booked: u64, known: TierBlocks) -> u32 {
    // Nothing is booked for nearly every row.
    if booked == 0 {
        return 0;
    }
    u32::try_from(booked).unwrap_or(u32::MAX).saturating_sub(known.total())
}

#[inline]
fn cache(weights: CacheWeights, tiers: TierBlocks, awaited: u32) -> WorkerCacheInput {
    let device = f64::from(tiers.device) + f64::from(awaited);
    weights.input(device, f64::from(tiers.host), f64::from(tiers.disk))
}

/// What of a request goes into the load of every row.
struct Sizes {
    prompt_tokens: u64,
    prompt_blocks: u64,
    block_tokens: f64,
}

impl Sizes {
    fn of(asked: &Asked<'_>) -> Self {
        Self {
            prompt_tokens: asked.request.prompt_tokens,
            prompt_blocks: asked.request.blocks.len() as u64,
            block_tokens: f64::from(asked.context.block_size()),
        }
    }

    /// The input of a row whose booked load is `load`, and on which `booked` blocks of the prompt are active already.
    #[inline]
    fn load(&self, load: &RowLoad, booked: u64) -> WorkerLoadInput {
        let prefill_tokens = load.active_prefill_tokens.saturating_add(self.prompt_tokens);
        let raw_prefill_blocks = prefill_tokens as f64 / self.block_tokens;
        let added = self.prompt_blocks.saturating_sub(booked);
        let decode_cost_blocks = (load.active_blocks() + added) as f64;
        host::load(raw_prefill_blocks, load.active_prefill_tokens, decode_cost_blocks, load.active_requests)
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
