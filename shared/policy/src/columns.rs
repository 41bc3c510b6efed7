//! All rows of one decision, signal by signal: what a scorer that looks at many rows at once reads. A scorer that looks at
//! one row at a time is handed a [`WorkerCandidate`] made of the same numbers.
//!
//! Built by the host (module `host`); nothing here is changed by a policy.

use crate::{WorkerCacheInput, WorkerCandidate, WorkerIdentity, WorkerInputs, WorkerLoadInput};

/// One signal of all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Column<'a> {
    /// Every row has this value.
    Same(f64),
    /// One value per row.
    Each(&'a [f64]),
}

impl Column<'_> {
    /// The value of one row. Panics for a row that is not there.
    #[inline]
    #[must_use]
    pub fn at(self, row: usize) -> f64 {
        match self {
            Self::Same(value) => value,
            Self::Each(values) => values[row],
        }
    }
}

/// How much of the prompt each row holds, in blocks; [`WorkerCacheInput`] says what each signal means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheColumns<'a> {
    /// All tiers, weighted.
    pub effective: &'a [f64],
    /// In the accelerator's memory.
    pub device: &'a [f64],
    /// In host memory.
    pub host: Column<'a>,
    /// On disk.
    pub disk: Column<'a>,
    /// Beyond the device prefix, in a shared cache.
    pub shared: Column<'a>,
}

/// What is booked on each row; [`WorkerLoadInput`] says what each signal means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadColumns<'a> {
    /// Blocks to prefill, with this prompt and without any cache.
    pub raw_prefill_blocks: &'a [f64],
    /// Booked tokens whose prefill is not complete.
    pub active_prefill_tokens: &'a [u64],
    /// Active blocks, with those that this request would add.
    pub decode_cost_blocks: &'a [f64],
    /// Booked requests that have not ended.
    pub active_requests: &'a [u64],
}

/// The rows of one decision. A group of signals is there only for a component that asked for it; all columns are of one
/// length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CandidateColumns<'a> {
    pub(crate) workers: &'a [WorkerIdentity],
    /// Groups that the running component sees.
    pub(crate) visible: WorkerInputs,
    pub(crate) cache: CacheColumns<'a>,
    pub(crate) load: LoadColumns<'a>,
    pub(crate) preferred_taint_multiplier: Column<'a>,
}

impl<'a> CandidateColumns<'a> {
    /// Number of rows.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.workers.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// Who each row is.
    #[must_use]
    pub const fn workers(&self) -> &'a [WorkerIdentity] {
        self.workers
    }

    /// Overlap with the prompt; needs [`WorkerInputs::CACHE`].
    #[must_use]
    pub const fn cache(&self) -> Option<&CacheColumns<'a>> {
        if self.visible.contains(WorkerInputs::CACHE) { Some(&self.cache) } else { None }
    }

    /// Booked load; needs [`WorkerInputs::LOAD`].
    #[must_use]
    pub const fn load(&self) -> Option<&LoadColumns<'a>> {
        if self.visible.contains(WorkerInputs::LOAD) { Some(&self.load) } else { None }
    }

    /// What to multiply costs with to honour preferred taints; needs [`WorkerInputs::ROUTING`].
    #[must_use]
    pub const fn preferred_taint_multiplier(&self) -> Option<Column<'a>> {
        if self.visible.contains(WorkerInputs::ROUTING) {
            Some(self.preferred_taint_multiplier)
        } else {
            None
        }
    }

    /// The rows one by one, each with the groups that are there.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = WorkerCandidate> {
        let rows = self.cut();
        (0..rows.len()).map(move |row| rows.candidate(row))
    }

    /// The same columns, of whose lengths the compiler knows that they are one: no row's look-ups are checked.
    fn cut(&self) -> Self {
        let rows = self.len();
        let mut cut = *self;
        if let Some(cache) = self.cache() {
            cut.cache = cache.cut(rows);
        }
        if let Some(load) = self.load() {
            cut.load = load.cut(rows);
        }
        cut
    }

    /// What the next component sees: `inputs` and no more.
    pub(crate) const fn show(&self, inputs: WorkerInputs) -> Self {
        Self { visible: self.visible.intersection(inputs), ..*self }
    }

    /// One row. Inlined into the loops of row-wise scorers, so that what they do not read is not loaded.
    #[inline]
    pub(crate) fn candidate(&self, row: usize) -> WorkerCandidate {
        WorkerCandidate {
            worker: self.workers[row],
            visible: self.visible,
            cache: self.cache().map_or_else(WorkerCacheInput::default, |cache| cache.at(row)),
            load: self.load().map_or_else(WorkerLoadInput::default, |load| load.at(row)),
            preferred_taint_multiplier: self
                .preferred_taint_multiplier()
                .map_or(1.0, |column| column.at(row)),
        }
    }
}

impl CacheColumns<'_> {
    #[inline]
    fn cut(&self, rows: usize) -> Self {
        Self { effective: &self.effective[..rows], device: &self.device[..rows], ..*self }
    }

    #[inline]
    pub(crate) fn at(&self, row: usize) -> WorkerCacheInput {
        WorkerCacheInput {
            effective: self.effective[row],
            device: self.device[row],
            host: self.host.at(row),
            disk: self.disk.at(row),
            shared: self.shared.at(row),
        }
    }
}

impl LoadColumns<'_> {
    #[inline]
    fn cut(&self, rows: usize) -> Self {
        Self {
            raw_prefill_blocks: &self.raw_prefill_blocks[..rows],
            active_prefill_tokens: &self.active_prefill_tokens[..rows],
            decode_cost_blocks: &self.decode_cost_blocks[..rows],
            active_requests: &self.active_requests[..rows],
        }
    }

    #[inline]
    pub(crate) fn at(&self, row: usize) -> WorkerLoadInput {
        WorkerLoadInput {
            raw_prefill_blocks: self.raw_prefill_blocks[row],
            active_prefill_tokens: self.active_prefill_tokens[row],
            decode_cost_blocks: self.decode_cost_blocks[row],
            active_requests: self.active_requests[row],
        }
    }
}
