//! Builders of what a policy reads: rows with their signals, one by one or as columns, and the request's context.

use crate::{
    CacheColumns, CandidateColumns, Column, LoadColumns, WorkerCacheInput, WorkerCandidate, WorkerIdentity,
    WorkerInputs, WorkerLoadInput, WorkerSelectionContext,
};

/// Columns of these workers' rows without signals; add them with the `with_` methods. What is not added is not there for
/// any component.
#[must_use]
pub const fn columns(workers: &[WorkerIdentity]) -> CandidateColumns<'_> {
    const NONE: Column<'_> = Column::Same(0.0);
    CandidateColumns {
        workers,
        visible: WorkerInputs::NONE,
        cache: CacheColumns { effective: &[], device: &[], host: NONE, disk: NONE, shared: NONE },
        load: LoadColumns {
            raw_prefill_blocks: &[],
            active_prefill_tokens: &[],
            decode_cost_blocks: &[],
            active_requests: &[],
        },
        preferred_taint_multiplier: Column::Same(1.0),
    }
}

/// Columns of another length than the rows' are the caller's mistake; a component that reads them panics.
impl<'a> CandidateColumns<'a> {
    /// The same rows with their overlap.
    #[must_use]
    pub const fn with_cache(mut self, cache: CacheColumns<'a>) -> Self {
        self.cache = cache;
        self.visible = self.visible.union(WorkerInputs::CACHE);
        self
    }

    /// The same rows with their load.
    #[must_use]
    pub const fn with_load(mut self, load: LoadColumns<'a>) -> Self {
        self.load = load;
        self.visible = self.visible.union(WorkerInputs::LOAD);
        self
    }

    /// The same rows with their preferred-taint multipliers.
    #[must_use]
    pub const fn with_preferred_taint_multipliers(mut self, multipliers: Column<'a>) -> Self {
        self.preferred_taint_multiplier = multipliers;
        self.visible = self.visible.union(WorkerInputs::ROUTING);
        self
    }
}

/// A row without signals; add them with the `with_` methods.
#[must_use]
pub const fn candidate(worker_id: u64, dp_rank: u32) -> WorkerCandidate {
    WorkerCandidate {
        worker: WorkerIdentity { worker_id, dp_rank },
        visible: WorkerInputs::NONE,
        cache: WorkerCacheInput { effective: 0.0, device: 0.0, host: 0.0, disk: 0.0, shared: 0.0 },
        load: WorkerLoadInput {
            raw_prefill_blocks: 0.0,
            active_prefill_tokens: 0,
            decode_cost_blocks: 0.0,
            active_requests: 0,
        },
        preferred_taint_multiplier: 1.0,
    }
}

impl WorkerCandidate {
    /// The same row with its overlap.
    #[must_use]
    pub const fn with_cache(mut self, cache: WorkerCacheInput) -> Self {
        self.cache = cache;
        self
    }

    /// The same row with its load.
    #[must_use]
    pub const fn with_load(mut self, load: WorkerLoadInput) -> Self {
        self.load = load;
        self
    }

    /// The same row with its preferred-taint multiplier.
    #[must_use]
    pub const fn with_preferred_taint_multiplier(mut self, multiplier: f64) -> Self {
        self.preferred_taint_multiplier = multiplier;
        self
    }
}

/// Overlap in blocks per tier, tiers weighted as the configuration's defaults do. Use [`CacheWeights`] for others.
#[must_use]
pub fn cache(device: f64, host: f64, disk: f64) -> WorkerCacheInput {
    CacheWeights::from(&crate::KvRouterConfig::default()).input(device, host, disk)
}

impl WorkerCacheInput {
    /// This overlap, which has no shared blocks yet, with `blocks` in a shared cache beyond the device prefix; each
    /// counts `multiplier` (`shared_cache_multiplier` of the configuration) of a device block.
    #[must_use]
    pub fn with_shared(mut self, blocks: f64, multiplier: f64) -> Self {
        self.shared = blocks;
        self.effective += multiplier * blocks;
        self
    }
}

/// How much a block counts in a slower tier than the device's, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheWeights {
    /// In host memory.
    pub host: f64,
    /// On disk.
    pub disk: f64,
}

impl From<&crate::KvRouterConfig> for CacheWeights {
    fn from(config: &crate::KvRouterConfig) -> Self {
        Self { host: config.host_cache_hit_weight, disk: config.disk_cache_hit_weight }
    }
}

impl CacheWeights {
    /// The overlap of `device`, `host` and `disk` blocks, each block counted once, at its fastest tier.
    #[must_use]
    pub fn input(self, device: f64, host: f64, disk: f64) -> WorkerCacheInput {
        let effective = device + self.host * host + self.disk * disk;
        WorkerCacheInput { effective, device, host, disk, shared: 0.0 }
    }
}

/// Load of a row: (active prefill + prompt tokens) ÷ block size, active prefill tokens, decode cost blocks, requests.
#[must_use]
pub const fn load(
    raw_prefill_blocks: f64,
    active_prefill_tokens: u64,
    decode_cost_blocks: f64,
    active_requests: u64,
) -> WorkerLoadInput {
    WorkerLoadInput { raw_prefill_blocks, active_prefill_tokens, decode_cost_blocks, active_requests }
}

/// Puts a [`WorkerSelectionContext`] together.
#[derive(Clone, Copy, Debug)]
pub struct ContextBuilder<'a>(WorkerSelectionContext<'a>);

impl<'a> ContextBuilder<'a> {
    /// A request of `prompt_tokens` in a partition whose blocks hold `block_size` tokens (at least 1).
    #[must_use]
    pub fn new(prompt_tokens: u64, block_size: u32) -> Self {
        Self(WorkerSelectionContext {
            prompt_tokens,
            block_size: block_size.max(1),
            expected_output_tokens: None,
            session: None,
            priority: 0.0,
            pinned_worker: None,
        })
    }

    /// With the number of tokens the caller expects back.
    #[must_use]
    pub const fn expected_output_tokens(mut self, tokens: Option<u64>) -> Self {
        self.0.expected_output_tokens = tokens;
        self
    }

    /// With the caller's session.
    #[must_use]
    pub const fn session(mut self, session: Option<&'a str>) -> Self {
        self.0.session = session;
        self
    }

    /// With the caller's priority.
    #[must_use]
    pub const fn priority(mut self, priority: f64) -> Self {
        self.0.priority = priority;
        self
    }

    /// With the worker that the caller demands.
    #[must_use]
    pub const fn pinned_worker(mut self, worker_id: Option<u64>) -> Self {
        self.0.pinned_worker = worker_id;
        self
    }

    /// The context.
    #[must_use]
    pub const fn build(self) -> WorkerSelectionContext<'a> {
        self.0
    }
}
