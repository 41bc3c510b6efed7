//! The index's nodes: one per distinct block, 20 bytes each, in pages that never move.
//!
//! Only [`super::holdings`] uses it; what the two variable fields mean is decided there.

use switchtower_ids::SequenceHash;

/// Position of a node; valid until the node is freed.
pub(super) type NodeId = u32;
/// "No node": the parent of a prompt's first block.
pub(super) const NO_NODE: NodeId = NodeId::MAX;
/// In `holder`: the node is free, and `parent` names the next free one.
const FREE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// In two halves, so that the node needs no padding.
    hash: [u32; 2],
    pub(super) parent: NodeId,
    /// Who holds the block: one row, or a set of rows.
    pub(super) holder: u32,
    /// What goes with the holder.
    pub(super) detail: u32,
}

impl Node {
    pub(super) const fn hash(&self) -> SequenceHash {
        let [high, low] = self.hash;
        SequenceHash(((high as u64) << 32) | low as u64)
    }
}

/// Nodes per page, as a power of two: growing adds a page and copies nothing.
const PAGE_BITS: u32 = 10;
const PAGE: usize = 1 << PAGE_BITS;

type Page = Box<[Node; PAGE]>;

#[derive(Debug)]
pub(super) struct Arena {
    pages: Vec<Page>,
    /// Positions used so far; the last page may have more.
    span: NodeId,
    first_free: NodeId,
    live: usize,
}

impl Default for Arena {
    fn default() -> Self {
        Self { pages: Vec::new(), span: 0, first_free: NO_NODE, live: 0 }
    }
}

impl Arena {
    /// How many nodes are in use.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Page>() + self.pages.len() * size_of::<[Node; PAGE]>()
    }

    pub(super) fn get(&self, id: NodeId) -> &Node {
        &self.pages[(id >> PAGE_BITS) as usize][id as usize % PAGE]
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.pages[(id >> PAGE_BITS) as usize][id as usize % PAGE]
    }

    /// The id that the next [`Arena::add`] gives.
    pub(super) fn next_id(&self) -> NodeId {
        if self.first_free == NO_NODE { self.span } else { self.first_free }
    }

    pub(super) fn add(&mut self, hash: SequenceHash, parent: NodeId, holder: u32, detail: u32) -> NodeId {
        let node = Node { hash: [(hash.0 >> 32) as u32, hash.0 as u32], parent, holder, detail };
        let id = self.next_id();
        if self.first_free == NO_NODE {
            if self.span as usize == self.pages.len() * PAGE {
                self.pages.push(Box::new([node; PAGE]));
            }
            self.span += 1;
        } else {
            self.first_free = self.get(id).parent;
        }
        *self.get_mut(id) = node;
        self.live += 1;
        id
    }

    pub(super) fn free(&mut self, id: NodeId) {
        let next = self.first_free;
        let node = self.get_mut(id);
        (node.holder, node.parent) = (FREE, next);
        self.first_free = id;
        self.live -= 1;
        if self.live == 0 {
            *self = Self::default();
        }
    }

    /// Every position that was ever used since the arena was last empty: bounds a scan.
    pub(super) fn span(&self) -> NodeId {
        self.span
    }

    /// The node at a scanned position, unless it is free.
    pub(super) fn occupied(&self, id: NodeId) -> Option<&Node> {
        (id < self.span).then(|| self.get(id)).filter(|node| node.holder != FREE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_small_and_freed_places_are_used_again() {
        assert_eq!(size_of::<Node>(), 20);
        let mut arena = Arena::default();
        let ids: Vec<_> = (0..3).map(|hash| arena.add(SequenceHash(hash << 33 | 7), NO_NODE, 0, 0)).collect();
        assert_eq!(arena.get(ids[2]).hash(), SequenceHash(2 << 33 | 7));
        arena.free(ids[1]);
        assert!(arena.occupied(ids[1]).is_none());
        assert_eq!(arena.next_id(), ids[1]);
        assert_eq!(arena.add(SequenceHash(9), NO_NODE, 0, 0), ids[1]);
        assert_eq!((arena.span(), arena.live()), (3, 3));
    }

    #[test]
    fn an_empty_arena_gives_its_memory_back() {
        let mut arena = Arena::default();
        let id = arena.add(SequenceHash(1), NO_NODE, 0, 0);
        arena.free(id);
        assert_eq!((arena.bytes(), arena.span()), (0, 0));
    }
}
