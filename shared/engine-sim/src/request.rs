//! What is asked of an engine: a request's lengths and the hashes of its blocks, and why one is refused.

use crate::EngineParameters;
use hashbrown::HashSet;
use std::num::NonZeroU32;
use switchtower_ids::SequenceHash;
use switchtower_kv::hash::{HashSpace, block_hashes};

/// One request. The output is known beforehand (the driver generates it), so that blocks of generated tokens get
/// the hashes that a later turn of the conversation will ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSpec {
    /// Chosen by the caller; unique among the requests that live in this engine.
    pub id: u64,
    /// Prompt length in tokens; at least 1.
    pub prompt_tokens: u32,
    /// Output length in tokens; at least 1. The engine stops there.
    pub output_tokens: u32,
    /// Sequence hashes of the full blocks of prompt and output together, from the first. May be shorter than that:
    /// blocks past its end take memory but are never cached.
    pub blocks: Vec<SequenceHash>,
}

impl RequestSpec {
    /// The request whose prompt and output are these tokens, hashed in `space`.
    #[must_use]
    pub fn from_tokens(
        id: u64,
        prompt: &[u32],
        output: &[u32],
        block_size: NonZeroU32,
        space: HashSpace,
    ) -> Self {
        let sequence = [prompt, output].concat();
        Self {
            id,
            prompt_tokens: u32::try_from(prompt.len()).unwrap_or(u32::MAX),
            output_tokens: u32::try_from(output.len()).unwrap_or(u32::MAX),
            blocks: block_hashes(&sequence, block_size, space),
        }
    }

    /// Tokens of prompt and output.
    pub(crate) fn total_tokens(&self) -> u64 {
        u64::from(self.prompt_tokens) + u64::from(self.output_tokens)
    }

    /// Refuses what this engine could never finish.
    pub(crate) fn validate(&self, parameters: &EngineParameters) -> Result<(), SubmitError> {
        let id = self.id;
        if self.prompt_tokens == 0 {
            return Err(SubmitError::EmptyPrompt { id });
        }
        if self.output_tokens == 0 {
            return Err(SubmitError::NoOutput { id });
        }
        let block_size = u64::from(parameters.block_size);
        let needed = self.total_tokens().div_ceil(block_size);
        if needed > u64::from(parameters.total_blocks) {
            return Err(SubmitError::TooLarge { id, needed, total: parameters.total_blocks });
        }
        let full = self.total_tokens() / block_size;
        if self.blocks.len() as u64 > full {
            return Err(SubmitError::TooManyBlocks { id, given: self.blocks.len(), full });
        }
        let mut seen = HashSet::with_capacity(self.blocks.len());
        match self.blocks.iter().find(|hash| !seen.insert(**hash)) {
            Some(hash) => Err(SubmitError::RepeatedBlock { id, hash: hash.0 }),
            None => Ok(()),
        }
    }
}

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// No prompt.
    #[error("request {id} has an empty prompt: give it at least one token")]
    EmptyPrompt {
        /// The request.
        id: u64,
    },
    /// No output.
    #[error("request {id} asks for 0 output tokens: ask for at least one")]
    NoOutput {
        /// The request.
        id: u64,
    },
    /// Prompt and output do not fit even when the request is alone.
    #[error("request {id} needs {needed} KV blocks and the engine has {total}: shorten its prompt or output")]
    TooLarge {
        /// The request.
        id: u64,
        /// Blocks it needs at its end.
        needed: u64,
        /// Blocks there are.
        total: u32,
    },
    /// More hashes than full blocks.
    #[error("request {id} gives {given} block hashes and has {full} full blocks: hash full blocks only")]
    TooManyBlocks {
        /// The request.
        id: u64,
        /// Hashes given.
        given: usize,
        /// Full blocks of its prompt and output.
        full: u64,
    },
    /// One hash names two depths.
    #[error("request {id} gives block hash {hash:016x} twice: sequence hashes of one prompt differ")]
    RepeatedBlock {
        /// The request.
        id: u64,
        /// The hash.
        hash: u64,
    },
    /// The name is taken.
    #[error("request {id} is in the engine already: give every request its own id")]
    RepeatedId {
        /// The request.
        id: u64,
    },
    /// `max_waiting` requests wait.
    #[error("request {id} is refused: {limit} requests wait (`max_waiting`); try again later")]
    QueueFull {
        /// The request.
        id: u64,
        /// The limit.
        limit: u32,
    },
}
