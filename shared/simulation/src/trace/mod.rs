//! A recorded trace as requests to replay: when each arrived, its lengths, the hashes of its prompt's blocks.
//!
//! Pure: bytes in, requests out. Reading files is the command's business. The formats are in `mooncake` and `azure`,
//! what is done to arrival times in `arrivals`.

mod arrivals;
mod azure;
mod mooncake;
mod oracle;
mod reading;

pub use reading::{ReadOptions, TraceError};

use std::{fmt, str::FromStr, sync::Arc};
use switchtower_ids::SequenceHash;

/// Tokens per block of a trace, and so of the engines that replay it. The mooncake format fixes it.
pub const BLOCK_TOKENS: u32 = 512;

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// JSON lines with `timestamp` (ms), `input_length`, `output_length` and `hash_ids`: one id per block of 512 tokens, the
    /// last one for the partial block at the end. Equal ids mean equal prefixes up to and including that block.
    Mooncake,
    /// CSV with `TIMESTAMP`, `ContextTokens` and `GeneratedTokens`. It says nothing of prefixes, so no two requests share any.
    Azure,
}

impl TraceFormat {
    /// The format's name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mooncake => "mooncake",
            Self::Azure => "azure",
        }
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No format has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no trace format {0:?}: choose mooncake or azure")]
pub struct UnknownFormat(String);

impl FromStr for TraceFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "mooncake" => Ok(Self::Mooncake),
            "azure" => Ok(Self::Azure),
            _ => Err(UnknownFormat(name.to_owned())),
        }
    }
}

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// Microseconds after the first request.
    pub arrival_us: u64,
    /// Length of the prompt, at least 1.
    pub prompt_tokens: u32,
    /// Length of the output, at least 1: an engine always produces one token.
    pub output_tokens: u32,
    /// Sequence hashes of the prompt's full blocks.
    pub blocks: Arc<[SequenceHash]>,
}

/// Requests in the order of their arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// How it was written.
    pub format: TraceFormat,
    /// The requests; at least one.
    pub requests: Vec<TraceRequest>,
    /// When the time that the requests cover ends, in microseconds after the first request: where the next one would be.
    pub span_us: u64,
    /// Bad lines that were left out.
    pub skipped: u64,
}

impl Trace {
    /// Prompt tokens of all requests.
    #[must_use]
    pub fn input_tokens(&self) -> u64 {
        self.requests.iter().map(|request| u64::from(request.prompt_tokens)).sum()
    }

    /// Output tokens of all requests.
    #[must_use]
    pub fn output_tokens(&self) -> u64 {
        self.requests.iter().map(|request| u64::from(request.output_tokens)).sum()
    }
}
