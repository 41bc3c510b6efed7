//! What an engine tells its driver: tokens, the fate of requests, changes of its cache, and its load. Plain data,
//! produced by [`crate::Engine`], read by the simulated worker and the replay.

use serde::{Deserialize, Serialize};
use switchtower_kv::event::KvEvent;

/// Something that happened in the engine, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// Output token 0 of request `id` was produced: its prefill is complete.
    FirstToken {
        /// The request.
        id: u64,
        /// Prompt tokens that were found in the cache when the request was first admitted, and so not computed.
        cached_tokens: u32,
    },
    /// Output token `index` (from 1) of request `id` was produced.
    Token {
        /// The request.
        id: u64,
        /// Position in the output; token 0 is [`EngineEvent::FirstToken`].
        index: u32,
    },
    /// Request `id` produced its last token and holds nothing any more.
    Finished {
        /// The request.
        id: u64,
    },
    /// The prefix cache changed. Only the device tier exists here.
    Kv(KvEvent),
}

/// The engine's own view of its load at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineLoad {
    /// Requests in the batch.
    pub running: u32,
    /// Requests in the queue.
    pub waiting: u32,
    /// Blocks that running requests hold; they cannot be evicted.
    pub blocks_used: u32,
    /// Blocks that are cached and held by nobody; they can be evicted.
    pub blocks_evictable: u32,
    /// Blocks that exist.
    pub blocks_total: u32,
    /// Prompt tokens still to be computed, of waiting and running requests. Waiting requests count whole: what the
    /// cache will save is known only at admission.
    pub prefill_tokens_waiting: u64,
}
