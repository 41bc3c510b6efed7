//! The engine's state and what a driver may do with it: submit, cancel, advance, look. How a step is composed and
//! what its end brings is in `step`.

use crate::{
    EngineEvent, EngineLoad, EngineParameters, ParameterError, RequestSpec, SubmitError, cache::BlockPool,
};
use hashbrown::HashSet;
use std::collections::VecDeque;
use switchtower_ids::SequenceHash;
use switchtower_kv::event::KvEvent;

/// One engine rank.
///
/// Time is whatever the caller says, in microseconds, and never goes back: an earlier `now_us` counts as the latest
/// one seen. The engine computes in steps; a request joins the batch at the first step that begins at or after its
/// arrival, and everything a step brings happens at its end. The same calls give the same events.
#[derive(Debug)]
pub struct Engine {
    pub(crate) parameters: EngineParameters,
    pub(crate) pool: BlockPool,
    /// First come, first served; preempted requests stand in front.
    pub(crate) waiting: VecDeque<Request>,
    /// The batch, in order of admission.
    pub(crate) running: Vec<Request>,
    pub(crate) ids: HashSet<u64>,
    /// End of the step that is being computed.
    pub(crate) step_end_us: Option<u64>,
    now_us: u64,
}

/// A request inside the engine.
#[derive(Debug)]
pub(crate) struct Request {
    /// As submitted; `blocks` is cut where a hash turns out to be taken by another chain.
    pub(crate) spec: RequestSpec,
    pub(crate) arrived_us: u64,
    /// Output tokens produced.
    pub(crate) generated: u32,
    /// Tokens whose KV is in memory.
    pub(crate) computed: u64,
    /// Tokens to compute before the next output token, fixed at admission. At or past it the request decodes.
    pub(crate) prefill_end: u64,
    /// It holds `spec.blocks[..pinned]` in the cache …
    pub(crate) pinned: usize,
    /// … and this many blocks without a name.
    pub(crate) anonymous: u32,
    /// Set at the first admission.
    pub(crate) cached_tokens: Option<u32>,
    /// Tokens that the current step computes.
    pub(crate) in_step: u64,
}

impl Request {
    fn new(spec: RequestSpec, arrived_us: u64) -> Self {
        let prefill_end = u64::from(spec.prompt_tokens);
        Self {
            spec,
            arrived_us,
            generated: 0,
            computed: 0,
            prefill_end,
            pinned: 0,
            anonymous: 0,
            cached_tokens: None,
            in_step: 0,
        }
    }

    /// Lets go of everything it holds in `pool` and forgets what it computed.
    pub(crate) fn release(&mut self, pool: &mut BlockPool) {
        pool.release(&self.spec.blocks[..self.pinned], self.anonymous);
        (self.pinned, self.anonymous, self.computed, self.in_step) = (0, 0, 0, 0);
    }
}

impl Engine {
    /// An empty, idle engine at time 0.
    ///
    /// # Errors
    /// [`ParameterError`] names the first parameter that is wrong.
    pub fn new(parameters: EngineParameters) -> Result<Self, ParameterError> {
        parameters.validate()?;
        Ok(Self {
            pool: BlockPool::new(parameters.total_blocks),
            parameters,
            waiting: VecDeque::new(),
            running: Vec::new(),
            ids: HashSet::new(),
            step_end_us: None,
            now_us: 0,
        })
    }

    /// What this engine was made with.
    #[must_use]
    pub fn parameters(&self) -> &EngineParameters {
        &self.parameters
    }

    /// Puts a request in the queue. It is considered when a step begins: see [`Self::next_event_at`].
    ///
    /// # Errors
    /// [`SubmitError`]: the engine could never finish it, its id is taken, or the queue is full. Nothing changes.
    pub fn submit(&mut self, now_us: u64, spec: RequestSpec) -> Result<(), SubmitError> {
        let id = spec.id;
        spec.validate(&self.parameters)?;
        if self.waiting.len() >= self.parameters.max_waiting as usize {
            return Err(SubmitError::QueueFull { id, limit: self.parameters.max_waiting });
        }
        if !self.ids.insert(id) {
            return Err(SubmitError::RepeatedId { id });
        }
        self.now_us = self.now_us.max(now_us);
        self.waiting.push_back(Request::new(spec, self.now_us));
        Ok(())
    }

    /// Takes a request out at once, wherever it is, and frees its blocks; those that are complete stay cached. No
    /// event follows. False when there is no such request.
    pub fn cancel(&mut self, id: u64) -> bool {
        if !self.ids.remove(&id) {
            return false;
        }
        if let Some(at) = self.running.iter().position(|request| request.spec.id == id) {
            self.running.remove(at).release(&mut self.pool);
        } else {
            self.waiting.retain(|request| request.spec.id != id);
        }
        true
    }

    /// When something happens next if nobody interferes; `None` when the engine is idle. Call [`Self::advance`] then
    /// (or later: the outcome is the same, only seen late).
    #[must_use]
    pub fn next_event_at(&self) -> Option<u64> {
        self.step_end_us.or_else(|| Some(self.waiting.front()?.arrived_us.max(self.now_us)))
    }

    /// Lets time pass up to and including `now_us` and appends what happens to `out`, in order.
    pub fn advance(&mut self, now_us: u64, out: &mut Vec<EngineEvent>) {
        while let Some(at_us) = self.next_event_at()
            && at_us <= now_us
        {
            if self.step_end_us.take().is_some() {
                self.finish_step(out);
            }
            self.begin_step(at_us, out);
        }
        self.now_us = self.now_us.max(now_us);
    }

    /// The load at this moment.
    #[must_use]
    pub fn load(&self) -> EngineLoad {
        let requests = self.running.iter().chain(&self.waiting);
        EngineLoad {
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            blocks_used: self.pool.used(),
            blocks_evictable: self.pool.evictable(),
            blocks_total: self.parameters.total_blocks,
            prefill_tokens_waiting: requests
                .map(|request| request.prefill_end.saturating_sub(request.computed))
                .sum(),
        }
    }

    /// Every cached block with its parent, in no particular order.
    pub fn cached_blocks(&self) -> impl Iterator<Item = (SequenceHash, Option<SequenceHash>)> {
        self.pool.cached()
    }

    /// Tokens of `blocks` that a request submitted now would find cached, were it admitted now.
    #[must_use]
    pub fn cached_tokens(&self, blocks: &[SequenceHash]) -> u64 {
        self.pool.find(blocks).0 as u64 * u64::from(self.parameters.block_size)
    }

    /// Empties the prefix cache, as an operator may ask. False, and nothing changes, while any request runs.
    pub fn clear_cache(&mut self, out: &mut Vec<EngineEvent>) -> bool {
        let cleared = self.pool.clear();
        if cleared {
            out.push(EngineEvent::Kv(KvEvent::Cleared));
        }
        cleared
    }
}
