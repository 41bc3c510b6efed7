//! What a policy may know about the request, and where it runs.

/// A (model, routing group) pair by reference: what a factory is told about the partition it builds a policy for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RoutingPartitionRef<'a> {
    model_name: &'a str,
    routing_group: &'a str,
}

impl<'a> RoutingPartitionRef<'a> {
    /// The partition of `model_name` in `routing_group`.
    #[must_use]
    pub const fn new(model_name: &'a str, routing_group: &'a str) -> Self {
        Self { model_name, routing_group }
    }

    /// The model's public name.
    #[must_use]
    pub const fn model_name(&self) -> &'a str {
        self.model_name
    }

    /// The routing group; `default` unless configured.
    #[must_use]
    pub const fn routing_group(&self) -> &'a str {
        self.routing_group
    }
}

/// Which worker and data-parallel rank a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerIdentity {
    /// The worker.
    pub worker_id: u64,
    /// The data-parallel rank inside it.
    pub dp_rank: u32,
}

/// The request, as a policy sees it: sizes and wishes, never text or tokens.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSelectionContext<'a> {
    pub(crate) prompt_tokens: u64,
    pub(crate) block_size: u32,
    pub(crate) expected_output_tokens: Option<u64>,
    pub(crate) session: Option<&'a str>,
    pub(crate) priority: f64,
    pub(crate) pinned_worker: Option<u64>,
}

impl<'a> WorkerSelectionContext<'a> {
    /// Length of the prompt in tokens.
    #[must_use]
    pub const fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens
    }

    /// Tokens per block.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        self.block_size
    }

    /// The prompt in blocks, rounded up.
    #[must_use]
    pub const fn request_blocks(&self) -> u64 {
        self.prompt_tokens.div_ceil(self.block_size as u64)
    }

    /// How many tokens the caller expects back, where it said so.
    #[must_use]
    pub const fn expected_output_tokens(&self) -> Option<u64> {
        self.expected_output_tokens
    }

    /// The caller's session, where it named one.
    #[must_use]
    pub const fn session(&self) -> Option<&'a str> {
        self.session
    }

    /// The caller's priority; 0 unless given, higher is more urgent.
    #[must_use]
    pub const fn priority(&self) -> f64 {
        self.priority
    }

    /// The worker that the caller demands, if any. Only its rows are candidates then.
    #[must_use]
    pub const fn pinned_worker(&self) -> Option<u64> {
        self.pinned_worker
    }
}
