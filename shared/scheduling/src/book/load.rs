//! The load of one row.

/// Sums over the reservations that count on a row (`book rule 6`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowLoad {
    /// Reservations.
    pub active_requests: u64,
    /// Prompt tokens that were not cached at booking and are not prefilled yet.
    pub active_prefill_tokens: u64,
    /// Distinct prompt blocks.
    pub prompt_blocks: u64,
    /// Blocks of output beyond the prompts.
    pub output_blocks: u64,
}

impl RowLoad {
    /// Distinct prompt blocks and output blocks.
    #[must_use]
    pub const fn active_blocks(&self) -> u64 {
        self.prompt_blocks + self.output_blocks
    }
}
