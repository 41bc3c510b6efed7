//! What became of each request.

/// The end of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// It was answered whole.
    Served(Served),
    /// It was not: the label of the router's outcome table, or `engine` when the engine refused it because prompt and output
    /// do not fit its memory, or its queue is full.
    Rejected(&'static str),
}

/// Times of one answered request, in microseconds since it arrived at the router, as the router saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Place of its row in the fleet.
    pub place: u32,
    /// Until it was booked.
    pub queue_wait_us: u64,
    /// Until its first token.
    pub ttft_us: u64,
    /// Until its last token.
    pub e2e_us: u64,
    /// Prompt tokens that the engine found in its cache at prefill.
    pub cached_tokens: u32,
}

/// The label of a request that an engine refused.
pub(crate) const REFUSED_BY_ENGINE: &str = "engine";
