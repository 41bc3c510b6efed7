//! One eligible row and the signals that a component asked for.

use crate::{WorkerIdentity, WorkerInputs};

/// How much of the prompt a row already holds, in blocks. A block counts once, at its fastest tier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerCacheInput {
    pub(crate) effective: f64,
    pub(crate) device: f64,
    pub(crate) host: f64,
    pub(crate) disk: f64,
    pub(crate) shared: f64,
}

impl WorkerCacheInput {
    /// All tiers weighted by the configuration: device + host weight × host + disk weight × disk + shared.
    #[must_use]
    pub const fn effective(&self) -> f64 {
        self.effective
    }

    /// Blocks in the accelerator's memory.
    #[must_use]
    pub const fn device(&self) -> f64 {
        self.device
    }

    /// Blocks in host memory.
    #[must_use]
    pub const fn host(&self) -> f64 {
        self.host
    }

    /// Blocks on disk.
    #[must_use]
    pub const fn disk(&self) -> f64 {
        self.disk
    }

    /// Blocks beyond the device prefix that a shared cache holds.
    #[must_use]
    pub const fn shared(&self) -> f64 {
        self.shared
    }
}

/// What is booked on a row. From the book, so it counts every replica's reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerLoadInput {
    pub(crate) raw_prefill_blocks: f64,
    pub(crate) active_prefill_tokens: u64,
    pub(crate) decode_cost_blocks: f64,
    pub(crate) active_requests: u64,
}

impl WorkerLoadInput {
    /// (active prefill tokens + this prompt's tokens) ÷ block size: prefill work on the row if the request came
    /// here and nothing were cached.
    #[must_use]
    pub const fn raw_prefill_blocks(&self) -> f64 {
        self.raw_prefill_blocks
    }

    /// Booked tokens whose prefill is not complete.
    #[must_use]
    pub const fn active_prefill_tokens(&self) -> u64 {
        self.active_prefill_tokens
    }

    /// Distinct active blocks on the row, plus those that this request would add.
    #[must_use]
    pub const fn decode_cost_blocks(&self) -> f64 {
        self.decode_cost_blocks
    }

    /// Booked requests that have not ended.
    #[must_use]
    pub const fn active_requests(&self) -> u64 {
        self.active_requests
    }
}

/// One eligible (worker, rank). A group of signals is there only for a component that asked for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerCandidate {
    pub(crate) worker: WorkerIdentity,
    /// Groups that the running component sees.
    pub(crate) visible: WorkerInputs,
    pub(crate) cache: WorkerCacheInput,
    pub(crate) load: WorkerLoadInput,
    pub(crate) preferred_taint_multiplier: f64,
}

impl WorkerCandidate {
    /// Who this row is.
    #[must_use]
    pub const fn worker(&self) -> WorkerIdentity {
        self.worker
    }

    /// The worker's id.
    #[must_use]
    pub const fn worker_id(&self) -> u64 {
        self.worker.worker_id
    }

    /// The data-parallel rank.
    #[must_use]
    pub const fn dp_rank(&self) -> u32 {
        self.worker.dp_rank
    }

    /// Overlap with the prompt; needs [`WorkerInputs::CACHE`].
    #[must_use]
    pub const fn cache(&self) -> Option<&WorkerCacheInput> {
        if self.visible.contains(WorkerInputs::CACHE) { Some(&self.cache) } else { None }
    }

    /// Booked load; needs [`WorkerInputs::LOAD`].
    #[must_use]
    pub const fn load(&self) -> Option<&WorkerLoadInput> {
        if self.visible.contains(WorkerInputs::LOAD) { Some(&self.load) } else { None }
    }

    /// What to multiply a cost with to honour preferred taints: 1 without a match, smaller with one. Needs
    /// [`WorkerInputs::ROUTING`].
    #[must_use]
    pub const fn preferred_taint_multiplier(&self) -> Option<f64> {
        if self.visible.contains(WorkerInputs::ROUTING) {
            Some(self.preferred_taint_multiplier)
        } else {
            None
        }
    }
}
