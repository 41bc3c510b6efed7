//! Continuous batching: what goes into a step, and what its end brings. Called by `Engine::advance` alone.
//!
//! Rules, in the order in which a step applies them:
//! 1. Every sequence that decodes computes one token. One that needs a new block and finds none, free or evictable,
//!    makes the most recently admitted request step aside (itself, if it is that one): that one lets go of its
//!    blocks and stands at the head of the queue; when it comes back it recomputes prompt and output so far, less
//!    what is still cached. The oldest request never steps aside, so the batch always moves.
//! 2. Prefills share the step's token budget in order of admission (chunked prefill).
//! 3. Unless somebody stepped aside, the queue is served first come, first served, while budget and batch have room
//!    and the blocks of the whole prompt are there, plus one for each running sequence, so that a newcomer is not
//!    thrown out at once. The first that does not fit holds up the rest. A cached prefix is taken at this moment
//!    and never covers the last token: at least one is computed, because sampling needs its logits.

use crate::{
    Engine, EngineEvent,
    cache::{BlockPool, Named},
    engine::Request,
    parameters::StepWork,
};
use switchtower_ids::{SequenceHash, Tier};
use switchtower_kv::event::KvEvent;

impl Engine {
    /// Composes the next step, if there is anything to compute at `at_us`.
    pub(crate) fn begin_step(&mut self, at_us: u64, out: &mut Vec<EngineEvent>) {
        let mut evicted = Vec::new();
        let somebody_stepped_aside = self.grow_decodes(&mut evicted);
        let mut step = Step { budget: self.parameters.prefill_tokens_per_step, work: StepWork::default() };
        for request in &mut self.running {
            step.take(request);
        }
        if !somebody_stepped_aside {
            self.admit(at_us, &mut step, &mut evicted);
        }
        if !evicted.is_empty() {
            out.push(EngineEvent::Kv(KvEvent::Removed { tier: Tier::Device, blocks: evicted }));
        }
        if !self.running.is_empty() {
            self.step_end_us = Some(at_us.saturating_add(self.parameters.step_us(&step.work)));
        }
    }

    /// Rule 1: a block for every decoding sequence that needs one. True when a request had to step aside.
    fn grow_decodes(&mut self, evicted: &mut Vec<SequenceHash>) -> bool {
        let batch = self.running.len();
        let mut at = 0;
        while at < self.running.len() {
            let short = self.running[at].needs_block(self.parameters.block_size);
            if !short || self.pool.allocate(1, evicted) {
                self.running[at].anonymous += u32::from(short);
                at += 1;
            } else if let Some(mut youngest) = self.running.pop() {
                youngest.release(&mut self.pool);
                youngest.prefill_end = u64::from(youngest.spec.prompt_tokens) + u64::from(youngest.generated);
                self.waiting.push_front(youngest);
            }
        }
        self.running.len() < batch
    }

    /// Rule 3.
    fn admit(&mut self, at_us: u64, step: &mut Step, evicted: &mut Vec<SequenceHash>) {
        while step.budget > 0
            && self.running.len() < self.parameters.max_batch as usize
            && self.waiting.front().is_some_and(|request| request.arrived_us <= at_us)
            && let Some(mut request) = self.waiting.pop_front()
        {
            let headroom = self.running.len() as u32;
            if !request.enter(&mut self.pool, self.parameters.block_size, headroom, evicted) {
                self.waiting.push_front(request);
                break;
            }
            step.take(&mut request);
            self.running.push(request);
        }
    }

    /// What the end of a step brings: blocks get their names, tokens come out, finished requests leave.
    pub(crate) fn finish_step(&mut self, out: &mut Vec<EngineEvent>) {
        let Self { parameters, pool, running, ids, .. } = self;
        running.retain_mut(|request| {
            if request.in_step == 0 {
                return true;
            }
            request.computed += std::mem::take(&mut request.in_step);
            request.name_full_blocks(pool, parameters.block_size, out);
            let finished = request.computed >= request.prefill_end && request.produce_token(out);
            if finished {
                request.release(pool);
                ids.remove(&request.spec.id);
                out.push(EngineEvent::Finished { id: request.spec.id });
            }
            !finished
        });
    }
}

/// A step being composed.
struct Step {
    /// Prefill tokens that may still be taken.
    budget: u32,
    work: StepWork,
}

impl Step {
    /// Takes what `request` computes in this step: one token in decode, a chunk in prefill (rule 2).
    fn take(&mut self, request: &mut Request) {
        if request.decodes() {
            request.in_step = 1;
            self.work.add_decode(request.computed + 1);
        } else {
            let chunk = u64::from(self.budget).min(request.prefill_end - request.computed);
            request.in_step = chunk;
            self.budget -= chunk as u32;
            self.work.add_chunk(chunk, request.computed);
        }
    }
}

impl Request {
    fn decodes(&self) -> bool {
        self.computed >= self.prefill_end
    }

    /// True when it decodes and its blocks have no room for the next token.
    fn needs_block(&self, block_size: u32) -> bool {
        let held = self.pinned as u64 + u64::from(self.anonymous);
        self.decodes() && held * u64::from(block_size) <= self.computed
    }

    /// Takes the cached prefix and the blocks of the rest. False, and nothing changes, when `headroom` blocks would
    /// not be left.
    fn enter(
        &mut self,
        pool: &mut BlockPool,
        block_size: u32,
        headroom: u32,
        evicted: &mut Vec<SequenceHash>,
    ) -> bool {
        let block_size = u64::from(block_size);
        let reusable = ((self.prefill_end - 1) / block_size).min(self.spec.blocks.len() as u64) as usize;
        let (hit, unheld) = pool.find(&self.spec.blocks[..reusable]);
        // Fits u32: the whole request has no more blocks than the pool.
        let rest = (self.prefill_end.div_ceil(block_size) - hit as u64) as u32;
        if u64::from(pool.available() - unheld) < u64::from(rest) + u64::from(headroom) {
            return false;
        }
        pool.pin(&self.spec.blocks[..hit]);
        pool.allocate(rest, evicted);
        (self.pinned, self.anonymous) = (hit, rest);
        self.computed = hit as u64 * block_size;
        // The cached prefix is shorter than the prompt, a u32, at the first admission.
        self.cached_tokens.get_or_insert(self.computed as u32);
        true
    }

    /// Puts the blocks that have become full into the cache, as far as they have names.
    fn name_full_blocks(&mut self, pool: &mut BlockPool, block_size: u32, out: &mut Vec<EngineEvent>) {
        let full = (self.computed / u64::from(block_size)).min(self.spec.blocks.len() as u64) as usize;
        // Blocks that others have cached come before all that are new, because the cache is prefix-closed.
        let mut first_new = None;
        while self.pinned < full {
            let at = self.pinned;
            let parent = at.checked_sub(1).map(|above| self.spec.blocks[above]);
            match pool.name(self.spec.blocks[at], parent, at as u32) {
                Named::Stored => first_new = first_new.or(Some((at, parent))),
                Named::Shared => {}
                Named::Conflict => {
                    self.spec.blocks.truncate(at);
                    break;
                }
            }
            self.pinned += 1;
            self.anonymous -= 1;
        }
        if let Some((first, parent)) = first_new {
            let blocks = self.spec.blocks[first..self.pinned].to_vec();
            out.push(EngineEvent::Kv(KvEvent::Stored { tier: Tier::Device, parent, blocks }));
        }
    }

    /// Produces the next output token; true when it was the last.
    fn produce_token(&mut self, out: &mut Vec<EngineEvent>) -> bool {
        let (id, index) = (self.spec.id, self.generated);
        out.push(match index {
            0 => EngineEvent::FirstToken { id, cached_tokens: self.cached_tokens.unwrap_or(0) },
            _ => EngineEvent::Token { id, index },
        });
        self.generated += 1;
        self.generated >= self.spec.output_tokens
    }
}
