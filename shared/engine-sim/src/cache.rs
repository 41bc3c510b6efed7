//! The engine's KV blocks: those cached under a sequence hash, and the anonymous ones that running requests write.
//! Counts only, no contents. Called by `engine` and `step`; knows nothing of time or queues.
//!
//! The cache stays prefix-closed (a block is there only with all its ancestors) without child counts: a request pins
//! whole chains, so a parent is let go no earlier than its child, and evicting by (last let go, deepest first) meets
//! every block before its parent.

use hashbrown::{HashMap, hash_map::Entry};
use std::{cmp::Reverse, collections::BTreeSet};
use switchtower_ids::SequenceHash;

/// One cached block.
#[derive(Debug)]
struct Block {
    parent: Option<SequenceHash>,
    depth: u32,
    /// Running requests that hold it. At 0 it stands in `evictable` under `let_go`.
    pins: u32,
    /// When it was last let go, in releases.
    let_go: u64,
}

impl Block {
    fn eviction_key(&self, hash: SequenceHash) -> EvictionKey {
        (self.let_go, Reverse(self.depth), hash)
    }
}

type EvictionKey = (u64, Reverse<u32>, SequenceHash);

/// The memory of one rank.
#[derive(Debug)]
pub(crate) struct BlockPool {
    total: u32,
    cached: HashMap<SequenceHash, Block>,
    /// Cached blocks that nobody holds, first to be evicted first.
    evictable: BTreeSet<EvictionKey>,
    /// Blocks that running requests hold and that have no name (yet).
    anonymous: u32,
    releases: u64,
}

impl BlockPool {
    /// `total` free blocks.
    pub(crate) fn new(total: u32) -> Self {
        Self { total, cached: HashMap::new(), evictable: BTreeSet::new(), anonymous: 0, releases: 0 }
    }

    /// Blocks that could be handed out now, evictable ones included.
    pub(crate) fn available(&self) -> u32 {
        self.total - self.used()
    }

    /// Blocks that running requests hold.
    pub(crate) fn used(&self) -> u32 {
        (self.cached.len() - self.evictable.len()) as u32 + self.anonymous
    }

    /// Cached blocks that nobody holds.
    pub(crate) fn evictable(&self) -> u32 {
        self.evictable.len() as u32
    }

    /// Every cached block with its parent, in no particular order.
    pub(crate) fn cached(&self) -> impl Iterator<Item = (SequenceHash, Option<SequenceHash>)> {
        self.cached.iter().map(|(hash, block)| (*hash, block.parent))
    }

    /// How many of `blocks`, from the first, are cached as this very chain; and how many of those nobody holds.
    pub(crate) fn find(&self, blocks: &[SequenceHash]) -> (usize, u32) {
        let (mut parent, mut depth, mut unheld) = (None, 0, 0);
        for hash in blocks {
            match self.cached.get(hash) {
                Some(block) if block.parent == parent => unheld += u32::from(block.pins == 0),
                _ => break,
            }
            depth += 1;
            parent = Some(*hash);
        }
        (depth, unheld)
    }

    /// Holds `blocks`, all of which [`Self::find`] has found.
    pub(crate) fn pin(&mut self, blocks: &[SequenceHash]) {
        for hash in blocks {
            let Some(block) = self.cached.get_mut(hash) else {
                continue;
            };
            if block.pins == 0 {
                self.evictable.remove(&block.eviction_key(*hash));
            }
            block.pins += 1;
        }
    }

    /// Lets go of a request's whole holding: its pinned chain, which stays cached, and its anonymous blocks.
    pub(crate) fn release(&mut self, pinned: &[SequenceHash], anonymous: u32) {
        self.releases += 1;
        self.anonymous = self.anonymous.saturating_sub(anonymous);
        for hash in pinned {
            let Some(block) = self.cached.get_mut(hash) else {
                continue;
            };
            block.pins = block.pins.saturating_sub(1);
            if block.pins == 0 {
                block.let_go = self.releases;
                self.evictable.insert(block.eviction_key(*hash));
            }
        }
    }

    /// Hands out `count` anonymous blocks, evicting as needed; `evicted` gets the victims, descendants first.
    /// False, and nothing changes, when there are not enough.
    pub(crate) fn allocate(&mut self, count: u32, evicted: &mut Vec<SequenceHash>) -> bool {
        if count > self.available() {
            return false;
        }
        let free = self.available() - self.evictable();
        for _ in free..count {
            let Some((_, _, hash)) = self.evictable.pop_first() else {
                break;
            };
            self.cached.remove(&hash);
            evicted.push(hash);
        }
        self.anonymous += count;
        true
    }

    /// Names one anonymous block of a request that holds the chain up to `parent`, which is at depth `depth - 1`.
    pub(crate) fn name(&mut self, hash: SequenceHash, parent: Option<SequenceHash>, depth: u32) -> Named {
        let named = match self.cached.entry(hash) {
            Entry::Vacant(place) => {
                place.insert(Block { parent, depth, pins: 1, let_go: 0 });
                Named::Stored
            }
            Entry::Occupied(mut place) => {
                let block = place.get_mut();
                if block.parent != parent {
                    return Named::Conflict;
                }
                if block.pins == 0 {
                    self.evictable.remove(&block.eviction_key(hash));
                }
                block.pins += 1;
                Named::Shared
            }
        };
        self.anonymous = self.anonymous.saturating_sub(1);
        named
    }

    /// Forgets every cached block. False, and nothing changes, while any is held.
    pub(crate) fn clear(&mut self) -> bool {
        if self.used() > 0 {
            return false;
        }
        self.cached.clear();
        self.evictable.clear();
        true
    }
}

/// What became of a block that got its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// It is new in the cache, held by the request.
    Stored,
    /// Another request had computed the same block: that one is held now, the copy is free again.
    Shared,
    /// The name is taken by a block with another parent; this one stays anonymous. Hashes of one space never do
    /// this; a caller who mixes spaces loses caching, not consistency.
    Conflict,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(from: u64, to: u64) -> Vec<SequenceHash> {
        (from..to).map(SequenceHash).collect()
    }

    fn store(pool: &mut BlockPool, blocks: &[SequenceHash], evicted: &mut Vec<SequenceHash>) {
        let (hit, _) = pool.find(blocks);
        pool.pin(&blocks[..hit]);
        assert!(pool.allocate((blocks.len() - hit) as u32, evicted));
        for depth in hit..blocks.len() {
            let parent = depth.checked_sub(1).map(|above| blocks[above]);
            assert_eq!(pool.name(blocks[depth], parent, depth as u32), Named::Stored);
        }
        pool.release(blocks, 0);
    }

    #[test]
    fn the_least_recently_used_chain_leaves_first_from_its_end() {
        let (mut pool, mut evicted) = (BlockPool::new(8), Vec::new());
        store(&mut pool, &chain(1, 5), &mut evicted);
        store(&mut pool, &chain(11, 15), &mut evicted);
        assert!(evicted.is_empty());
        store(&mut pool, &chain(1, 3), &mut evicted);
        assert!(pool.allocate(3, &mut evicted));
        assert_eq!(evicted, [4, 3, 14].map(SequenceHash), "the touched prefix 1, 2 outlives both tails");
        assert_eq!((pool.used(), pool.evictable(), pool.available()), (3, 5, 5));
    }

    #[test]
    fn held_blocks_are_never_evicted() {
        let (mut pool, mut evicted) = (BlockPool::new(4), Vec::new());
        store(&mut pool, &chain(1, 5), &mut evicted);
        pool.pin(&chain(1, 4));
        assert!(!pool.allocate(2, &mut evicted));
        assert!(evicted.is_empty());
        assert!(pool.allocate(1, &mut evicted));
        assert_eq!(evicted, [SequenceHash(4)]);
        assert!(!pool.clear());
    }

    #[test]
    fn a_block_that_two_requests_computed_is_kept_once() {
        let (mut pool, mut evicted) = (BlockPool::new(4), Vec::new());
        assert!(pool.allocate(2, &mut evicted));
        assert_eq!(pool.name(SequenceHash(1), None, 0), Named::Stored);
        assert_eq!(pool.name(SequenceHash(1), None, 0), Named::Shared);
        assert_eq!((pool.used(), pool.available()), (1, 3));
        pool.release(&[SequenceHash(1)], 0);
        assert_eq!(pool.evictable(), 0, "the second request still holds it");
        pool.release(&[SequenceHash(1)], 0);
        assert_eq!(pool.evictable(), 1);
    }

    #[test]
    fn a_name_with_another_parent_is_no_hit_and_no_replacement() {
        let (mut pool, mut evicted) = (BlockPool::new(4), Vec::new());
        store(&mut pool, &chain(1, 3), &mut evicted);
        assert_eq!(pool.find(&[SequenceHash(2)]), (0, 0));
        assert!(pool.allocate(1, &mut evicted));
        assert_eq!(pool.name(SequenceHash(2), None, 0), Named::Conflict);
        assert_eq!(pool.used(), 1);
    }
}
