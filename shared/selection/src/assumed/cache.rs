//! What one row is assumed to have cached, from the prompts that were sent there: least recently used first out, and
//! nothing longer than its time. Pure; [`super::Assumptions`] writes what follows from it into an index.
//!
//! A prompt is used as a whole, its last block first and its first block last. So a block is never older than one that
//! continues it, and whatever leaves, leaves after its children: the row stays prefix-closed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};
use switchtower_ids::SequenceHash;

/// One prompt's use.
struct Use {
    at_ms: u64,
    prompt: Arc<[SequenceHash]>,
    /// Blocks from here on have left.
    end: usize,
    /// How many of those before have this as their last use.
    live: usize,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct AssumedCache {
    /// Block → number of its last use.
    blocks: HashMap<SequenceHash, u64>,
    /// Uses with live blocks, oldest first.
    uses: BTreeMap<u64, Use>,
    number: u64,
}

impl AssumedCache {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The prompt's blocks are used at `now_ms`.
    pub(super) fn touch(&mut self, now_ms: u64, prompt: &Arc<[SequenceHash]>, length: usize) {
        let length = length.min(prompt.len());
        if length == 0 {
            return;
        }
        self.number += 1;
        let mut live = 0;
        for block in &prompt[..length] {
            match self.blocks.insert(*block, self.number) {
                // Only a hash that collides stands twice in a prompt.
                Some(last) if last == self.number => continue,
                Some(last) => self.leave(last),
                None => {}
            }
            live += 1;
        }
        let newest = Use { at_ms: now_ms, prompt: Arc::clone(prompt), end: length, live };
        self.uses.insert(self.number, newest);
    }

    /// One block of this use has a later one.
    fn leave(&mut self, number: u64) {
        if let Some(last) = self.uses.get_mut(&number) {
            last.live -= 1;
            if last.live == 0 {
                self.uses.remove(&number);
            }
        }
    }

    /// Forgets all but the `capacity` blocks that were used last; returns the forgotten ones.
    pub(super) fn shrink(&mut self, capacity: usize) -> Vec<SequenceHash> {
        let mut gone = Vec::new();
        while self.blocks.len() > capacity
            && let Some(mut oldest) = self.uses.first_entry()
        {
            let number = *oldest.key();
            let last = oldest.get_mut();
            while self.blocks.len() > capacity && last.live > 0 && last.end > 0 {
                last.end -= 1;
                let block = last.prompt[last.end];
                if self.blocks.get(&block) == Some(&number) {
                    self.blocks.remove(&block);
                    last.live -= 1;
                    gone.push(block);
                }
            }
            if last.live == 0 || last.end == 0 {
                oldest.remove();
            }
        }
        gone
    }

    /// Forgets what was not used since `since_ms`; returns it.
    pub(super) fn expire(&mut self, since_ms: u64) -> Vec<SequenceHash> {
        let old = self.uses.values().take_while(|last| last.at_ms < since_ms);
        let blocks: usize = old.map(|last| last.live).sum();
        self.shrink(self.blocks.len() - blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(name: u64, length: u64) -> Arc<[SequenceHash]> {
        (0..length).map(|depth| SequenceHash(name * 1_000 + depth)).collect()
    }

    /// The first `common` blocks of one chain and then another's.
    fn branch(trunk: u64, common: u64, name: u64, length: u64) -> Arc<[SequenceHash]> {
        let (trunk, own) = (chain(trunk, common), chain(name, length));
        trunk.iter().copied().chain(own.iter().copied().skip(common as usize)).collect()
    }

    fn touch(cache: &mut AssumedCache, at_ms: u64, prompt: &Arc<[SequenceHash]>) {
        cache.touch(at_ms, prompt, prompt.len());
    }

    #[test]
    fn what_was_used_longest_ago_leaves_first_its_last_block_before_the_one_it_continues() {
        let mut cache = AssumedCache::default();
        let (first, second) = (chain(1, 4), chain(2, 4));
        touch(&mut cache, 0, &first);
        touch(&mut cache, 1, &second);
        assert_eq!(cache.shrink(8), []);
        assert_eq!(cache.shrink(5), [first[3], first[2], first[1]]);
        touch(&mut cache, 2, &first);
        assert_eq!(cache.len(), 8);
        assert_eq!(cache.shrink(6), [second[3], second[2]]);
    }

    #[test]
    fn a_common_prefix_lives_as_long_as_the_last_that_used_it() {
        let mut cache = AssumedCache::default();
        let (long, fork) = (chain(1, 6), branch(1, 3, 2, 5));
        touch(&mut cache, 0, &long);
        touch(&mut cache, 10, &fork);
        assert_eq!(cache.len(), 8);
        assert_eq!(cache.expire(0), []);
        assert_eq!(cache.expire(10), [long[5], long[4], long[3]]);
        assert_eq!(cache.expire(11), [fork[4], fork[3], fork[2], fork[1], fork[0]]);
        assert!(cache.blocks.is_empty() && cache.uses.is_empty());
    }

    #[test]
    fn uses_are_no_more_than_blocks_however_often_a_prompt_comes() {
        let mut cache = AssumedCache::default();
        for round in 0..1_000 {
            touch(&mut cache, round, &chain(1, 4));
            touch(&mut cache, round, &branch(1, 2, 2, 4));
        }
        assert_eq!((cache.len(), cache.uses.len()), (6, 2));
    }

    #[test]
    fn a_prompt_that_is_longer_than_its_row_is_used_up_to_there() {
        let mut cache = AssumedCache::default();
        let prompt = chain(1, 10);
        cache.touch(0, &prompt, 4);
        assert_eq!(cache.len(), 4);
        assert_eq!(cache.shrink(0), [prompt[3], prompt[2], prompt[1], prompt[0]]);
        cache.touch(1, &prompt, 0);
        assert!(cache.uses.is_empty());
    }

    #[test]
    fn at_every_moment_a_block_is_there_only_with_the_one_it_continues() {
        let mut cache = AssumedCache::default();
        // A small deterministic walk over prompts that share prefixes with one another.
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let prompts: Vec<_> = (0..12).map(|name| branch(0, name % 4, name, 3 + name % 5)).collect();
        for round in 0..2_000 {
            touch(&mut cache, round, &prompts[draw(12) as usize]);
            match draw(4) {
                0 => drop(cache.expire(round.saturating_sub(draw(10)))),
                1 => drop(cache.shrink(draw(20) as usize)),
                _ => {}
            }
            let live: usize = cache.uses.values().map(|last| last.live).sum();
            assert_eq!(live, cache.len());
            for prompt in &prompts {
                let held = prompt.iter().map(|block| cache.blocks.contains_key(block)).collect::<Vec<_>>();
                assert!(held.is_sorted_by(|before, after| before >= after), "round {round}: {held:?}");
            }
        }
    }
}
