//! What one rank's engine holds, as a tree of blocks with parent and child links.
//!
//! Only the publisher uses it. The tree stores and links; what becomes visible and what is announced is decided in
//! [`super`].
//!
//! A node without tiers is a *ghost*: the engine does not hold the block, but holds a descendant of it. Ghosts
//! keep the place of blocks that come (back) later, and go with their last child.

use crate::runs::HeldBlock;
use crate::spread::SpreadMap;
use crate::tiers::Tiers;
use switchtower_ids::SequenceHash;

/// Position of a node; valid until the node is removed.
pub(super) type NodeId = u32;
const NO_NODE: NodeId = NodeId::MAX;

/// What is known about the block before a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parent {
    /// There is none: the block starts the prompt.
    Root,
    /// A ghost that was only ever named as a parent.
    Unknown,
    Node(NodeId),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) hash: SequenceHash,
    pub(super) parent: Parent,
    /// Where the engine holds the block.
    pub(super) tiers: Tiers,
    /// Announced: the block and all its ancestors are held.
    pub(super) visible: bool,
    first_child: NodeId,
    previous_sibling: NodeId,
    next_sibling: NodeId,
}

#[derive(Debug, Default)]
pub(super) struct BlockTree {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    ids: SpreadMap<SequenceHash, NodeId>,
}

impl BlockTree {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn find(&self, hash: SequenceHash) -> Option<NodeId> {
        self.ids.get(&hash).copied()
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    /// The node of `hash`; a new ghost if there was none.
    pub(super) fn find_or_ghost(&mut self, hash: SequenceHash) -> NodeId {
        if let Some(id) = self.find(hash) {
            return id;
        }
        let ghost = Node {
            hash,
            parent: Parent::Unknown,
            tiers: Tiers::NONE,
            visible: false,
            first_child: NO_NODE,
            previous_sibling: NO_NODE,
            next_sibling: NO_NODE,
        };
        let id = match self.free.pop() {
            Some(id) => {
                *self.node_mut(id) = ghost;
                id
            }
            None => {
                self.nodes.push(ghost);
                (self.nodes.len() - 1) as NodeId
            }
        };
        self.ids.insert(hash, id);
        id
    }

    /// Sets the parent of a node whose parent was unknown.
    pub(super) fn set_parent(&mut self, id: NodeId, parent: Parent) {
        self.node_mut(id).parent = parent;
        let Parent::Node(parent) = parent else { return };
        let first = std::mem::replace(&mut self.node_mut(parent).first_child, id);
        self.node_mut(id).next_sibling = first;
        if first != NO_NODE {
            self.node_mut(first).previous_sibling = id;
        }
    }

    pub(super) fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let some = |id| (id != NO_NODE).then_some(id);
        std::iter::successors(some(self.node(id).first_child), move |at| some(self.node(*at).next_sibling))
    }

    /// Every node below `id`, each after all its own descendants, so that any front part can be removed.
    pub(super) fn descendants_leaves_first(&self, id: NodeId) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut pending: Vec<NodeId> = self.children(id).collect();
        while let Some(next) = pending.pop() {
            found.push(next);
            pending.extend(self.children(next));
        }
        found.reverse();
        found
    }

    /// The uppermost known ancestor of `id`, or `id` itself.
    pub(super) fn top(&self, mut id: NodeId) -> NodeId {
        while let Parent::Node(parent) = self.node(id).parent {
            id = parent;
        }
        id
    }

    /// Removes a node without children.
    pub(super) fn remove(&mut self, id: NodeId) {
        let Node { hash, parent, previous_sibling, next_sibling, .. } = *self.node(id);
        if next_sibling != NO_NODE {
            self.node_mut(next_sibling).previous_sibling = previous_sibling;
        }
        if previous_sibling != NO_NODE {
            self.node_mut(previous_sibling).next_sibling = next_sibling;
        } else if let Parent::Node(parent) = parent {
            self.node_mut(parent).first_child = next_sibling;
        }
        self.ids.remove(&hash);
        self.free.push(id);
    }

    /// `id`'s block with `tiers` in place of all those that hold it.
    pub(super) fn held(&self, id: NodeId, tiers: Tiers) -> HeldBlock {
        let node = self.node(id);
        let parent = match node.parent {
            Parent::Node(parent) => Some(self.node(parent).hash),
            Parent::Root | Parent::Unknown => None,
        };
        HeldBlock { hash: node.hash, parent, tiers }
    }

    /// Every announced block.
    pub(super) fn visible(&self) -> Vec<HeldBlock> {
        let ids = self.ids.values().copied().filter(|id| self.node(*id).visible);
        ids.map(|id| self.held(id, self.node(id).tiers)).collect()
    }
}
