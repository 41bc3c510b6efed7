//! Turns eligible rows into what the policy reads: only the groups it asked for, in columns that are used again.
//!
//! A row's overlap is what the index knows it holds, and what it is about to hold: blocks of the prompt that are booked
//! there count as blocks on the device, because the requests in front compute them before this one's turn comes. Without
//! that, requests with a common prefix that arrive within one prefill of each other would be spread, and computed, over
//! the whole fleet.

mod columns;

use super::{eligible::Eligible, fleet_columns::FleetColumns};
use crate::{
    OverlapIndex, Request, WorkerTable,
    book::{Book, KeptBlock, SharedBlocks},
};
use columns::{BookedRow, Cache, Load, SomeRows, same_or_each};
use switchtower_ids::SequenceHash;
use switchtower_kv::index::{Overlap, RowSlot, TierBlocks};
use switchtower_policy::{
    CandidateColumns, KvRouterConfig, LoadColumns, WorkerInputs, WorkerSelectionContext,
    host::{self, CacheWeights, ContextBuilder},
};

/// Where the signals come from.
#[derive(Clone, Copy)]
pub(super) struct Fleet<'a> {
    pub(super) table: &'a WorkerTable,
    pub(super) columns: &'a FleetColumns,
    pub(super) book: &'a Book,
    pub(super) index: &'a dyn OverlapIndex,
}

/// What the signals are about.
pub(super) struct Asked<'a> {
    pub(super) request: &'a Request,
    pub(super) context: &'a WorkerSelectionContext<'a>,
    pub(super) kept: &'a [KeptBlock],
}

/// The signals of one decision's rows, and the buffers behind them.
pub(super) struct Candidates {
    weights: CacheWeights,
    preferred_taint_multiplier: f64,
    inputs: WorkerInputs,
    overlap: Overlap,
    booked: SharedBlocks,
    /// The rows on which blocks of the prompt are booked.
    booked_rows: Vec<BookedRow>,
    cache: Cache,
    load: Load,
    some: SomeRows,
    /// Empty where no taints are preferred.
    multipliers: Vec<f64>,
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
            weights: CacheWeights::from(config),
            preferred_taint_multiplier: config.preferred_taint_multiplier,
            inputs: WorkerInputs::NONE,
            overlap: Overlap::default(),
            booked: SharedBlocks::default(),
            booked_rows: Vec::new(),
            cache: Cache::default(),
            load: Load::default(),
            some: SomeRows::default(),
            multipliers: Vec::new(),
        }
    }

    /// Computes the signals of the eligible rows. Overlap is always looked up, because booking needs it.
    pub(super) fn build(
        &mut self,
        inputs: WorkerInputs,
        fleet: Fleet<'_>,
        asked: &Asked<'_>,
        eligible: &Eligible,
    ) {
        self.inputs = inputs;
        self.query(fleet.index, &asked.request.blocks);
        fleet.book.shared_blocks(asked.kept, &mut self.booked);
        self.find_booked_rows(fleet.columns, eligible);
        if inputs.contains(WorkerInputs::CACHE) {
            self.cache.fill(&self.overlap, fleet.columns, eligible);
            self.cache.put_right(self.weights, &self.booked_rows);
        }
        if inputs.contains(WorkerInputs::LOAD) {
            self.load.fill(asked, fleet.columns, eligible);
            self.load.put_right(asked, fleet.columns, &self.booked_rows);
        }
        if !eligible.are_all() {
            self.some.gather(fleet.columns, eligible.positions());
        }
        self.multipliers.clear();
        if inputs.contains(WorkerInputs::ROUTING) && !asked.request.constraints.preferred_taints.is_empty() {
            self.fill_multipliers(fleet.table, asked.request, eligible);
        }
    }

    /// What was built last, for the same fleet and the same eligible rows.
    pub(super) fn columns<'a>(
        &'a self,
        fleet: &'a FleetColumns,
        eligible: &Eligible,
    ) -> CandidateColumns<'a> {
        let some = &self.some;
        let (workers, active_prefill_tokens, active_requests): (&[_], &[_], &[_]) = if eligible.are_all() {
            (&fleet.workers, &fleet.active_prefill_tokens, &fleet.active_requests)
        } else {
            (&some.workers, &some.active_prefill_tokens, &some.active_requests)
        };
        let mut columns = host::columns(workers);
        if self.inputs.contains(WorkerInputs::CACHE) {
            columns = columns.with_cache(self.cache.columns());
        }
        if self.inputs.contains(WorkerInputs::LOAD) {
            let Load { raw_prefill_blocks, decode_cost_blocks } = &self.load;
            columns = columns.with_load(LoadColumns {
                raw_prefill_blocks,
                active_prefill_tokens,
                decode_cost_blocks,
                active_requests,
            });
        }
        if self.inputs.contains(WorkerInputs::ROUTING) {
            columns = columns.with_preferred_taint_multipliers(same_or_each(&self.multipliers, 1.0));
        }
        columns
    }

    fn find_booked_rows(&mut self, fleet: &FleetColumns, eligible: &Eligible) {
        let Self { overlap, booked, booked_rows, .. } = self;
        booked_rows.clear();
        booked_rows.extend(booked.iter().filter_map(|(column, blocks)| {
            let position = fleet.position(column)?;
            let row = eligible.row(position)?;
            let awaited = awaited_blocks(blocks, overlap.blocks(fleet.slots[position]));
            Some(BookedRow { row, position, blocks, awaited })
        }));
    }

    fn fill_multipliers(&mut self, table: &WorkerTable, request: &Request, eligible: &Eligible) {
        // A worker's taints are few; what a caller prefers may be many, and is sorted.
        let preferred = &request.constraints.preferred_taints;
        let multiplier = self.preferred_taint_multiplier;
        self.multipliers.extend(eligible.positions().iter().map(|position| {
            let own = table.rows()[*position].taints.iter();
            let matches = own.filter(|own| preferred.binary_search(own).is_ok()).count();
            multiplier.powi(i32::try_from(matches).unwrap_or(i32::MAX))
        }));
    }

    /// Looks up the prompt's cached blocks on all rows.
    pub(super) fn query(&mut self, index: &dyn OverlapIndex, blocks: &[SequenceHash]) {
        index.overlap(blocks, &mut self.overlap);
    }

    /// The last query's result for one row.
    pub(super) fn tiers(&self, slot: RowSlot) -> TierBlocks {
        self.overlap.blocks(slot)
    }

    /// The last query's result for the row at `position`, and the prompt tokens that booking takes for cached: effective
    /// blocks, those on their way included, × block size, rounded, and at most the prompt less one token, because an
    /// engine computes at least that one.
    pub(super) fn overlap_at(
        &self,
        position: usize,
        fleet: &FleetColumns,
        prompt_tokens: u64,
        block_size: u32,
    ) -> (TierBlocks, u64) {
        let tiers = self.tiers(fleet.slots[position]);
        let awaited = awaited_blocks(self.booked.at(fleet.columns()[position]), tiers);
        let device = f64::from(tiers.device) + f64::from(awaited);
        let cached = self.weights.input(device, f64::from(tiers.host), f64::from(tiers.disk));
        let effective_tokens = cached.effective() * f64::from(block_size);
        (tiers, (effective_tokens.round() as u64).min(prompt_tokens.saturating_sub(1)))
    }
}

/// How many more blocks of the prompt are booked on a row than the index knows of.
fn awaited_blocks(booked: u64, known: TierBlocks) -> u32 {
    u32::try_from(booked).unwrap_or(u32::MAX).saturating_sub(known.total())
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
    /// Wanted is the same prompt with four blocks more.
    struct World {
        table: WorkerTable,
        columns: FleetColumns,
        book: Book,
        index: PrefixIndex,
        wanted: Request,
    }

    fn world() -> World {
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
        World { columns: FleetColumns::of(&table, &book), table, book, index, wanted }
    }

    impl World {
        fn build(&self, inputs: WorkerInputs, eligible: &Eligible) -> Candidates {
            let Self { table, columns, book, index, wanted } = self;
            let mut candidates = Candidates::new(&KvRouterConfig::default());
            let (context, kept) = (context(wanted, 16), kept_blocks(&wanted.blocks));
            let asked = Asked { request: wanted, context: &context, kept: &kept };
            candidates.build(inputs, Fleet { table, columns, book, index }, &asked, eligible);
            candidates
        }
    }

    /// Workers 1 and 3, or all.
    fn eligible(are_all: bool) -> Eligible {
        let mut eligible = Eligible::default();
        if are_all {
            eligible.set_all(3);
        } else {
            eligible.list().extend([0, 2]);
        }
        eligible
    }

    #[test]
    fn blocks_that_are_booked_on_a_row_count_as_on_their_way_to_its_device() {
        // The common kept depths are 16 and 32; three of those 32 are there already, in host memory. Of what a row would
        // have to decode, 40 blocks are booked, 32 of which are known to be the prompt's.
        let expected = [(1, 29.0, 3.0, (40, 12)), (2, 32.0, 0.0, (40, 12)), (3, 0.0, 0.0, (0, 44))];
        let expected = expected.map(|(worker, device, on_host, (booked, added))| {
            let (tokens, requests) = if booked > 0 { (640, 1) } else { (0, 0) };
            let load = host::load((tokens + 704) as f64 / 16.0, tokens, f64::from(booked + added), requests);
            host::candidate(worker, 0).with_cache(host::cache(device, on_host, 0.0)).with_load(load)
        });
        let (world, expected) = (world(), host::Rows::from(expected.as_slice()));
        let inputs = WorkerInputs::CACHE | WorkerInputs::LOAD | WorkerInputs::ROUTING;
        for (are_all, rows) in [(true, vec![0, 1, 2]), (false, vec![0, 2])] {
            let eligible = eligible(are_all);
            let candidates = world.build(inputs, &eligible);
            let found: Vec<_> = candidates.columns(&world.columns, &eligible).iter().collect();
            let expected: Vec<_> = expected.columns().iter().collect();
            assert_eq!(found, rows.into_iter().map(|row| expected[row]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_no_policy_asked_for_is_not_there() {
        let (world, eligible) = (world(), eligible(true));
        let candidates = world.build(WorkerInputs::CACHE, &eligible);
        let columns = candidates.columns(&world.columns, &eligible);
        assert!(columns.cache().is_some() && columns.load().is_none());
        assert_eq!(columns.preferred_taint_multiplier(), None);
    }

    #[test]
    fn booking_takes_them_for_cached_and_the_overlap_that_is_told_is_the_index_s() {
        let world = world();
        let candidates = world.build(WorkerInputs::NONE, &eligible(true));
        let told = |position| candidates.overlap_at(position, &world.columns, world.wanted.prompt_tokens, 16);
        assert_eq!(told(0), (TierBlocks { host: 3, ..TierBlocks::default() }, 29 * 16 + 36));
        assert_eq!(told(1), (TierBlocks::default(), 32 * 16));
        assert_eq!(told(2), (TierBlocks::default(), 0));
    }
}
