//! Which rows hold which blocks: nodes, the map to them, and the state of each (row, block) pair.
//!
//! The base of the index: [`super`] checks events and keeps the rules, this file only stores. Nothing here refuses.
//!
//! Most blocks are held by one row; its pair is inside the node. A node of several rows names a shared
//! set; its pairs are taken to be [`Pair::USUAL`] (device only, one child), and the others stand in a small map.
//! A chain that many rows share has an unusual pair at its end only, so it costs next to nothing per row.

use super::arena::{Arena, NO_NODE, Node, NodeId};
use super::row_sets::{Rest, RowSets, SetId};
use super::table::HashTable;
use crate::spread::SpreadMap;
use crate::tiers::Tiers;
use switchtower_ids::{SequenceHash, Tier};

/// One row's share of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// Where the row holds the block; never empty.
    pub(super) tiers: Tiers,
    /// How many of the block's children the row holds.
    pub(super) children: u32,
}

impl Pair {
    const USUAL: Self = Self { tiers: Tiers::DEVICE, children: 1 };

    const fn bits(self) -> u32 {
        (self.children << Tiers::BITS) | self.tiers.bits()
    }

    const fn from_bits(bits: u32) -> Self {
        Self { tiers: Tiers::from_bits(bits), children: bits >> Tiers::BITS }
    }

    fn is_off_device(self) -> bool {
        !self.tiers.contains(Tier::Device)
    }
}

/// `Node::holder`, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// One row; `Node::detail` is its pair.
    Row(u32),
    /// Several rows; `Node::detail` counts those that hold the block off the device only.
    Set(SetId),
}

const SET_BIT: u32 = 1 << 31;

impl Holder {
    fn of(node: &Node) -> Self {
        if node.holder & SET_BIT == 0 { Self::Row(node.holder) } else { Self::Set(node.holder & !SET_BIT) }
    }

    const fn bits(self) -> u32 {
        match self {
            Self::Row(row) => row,
            Self::Set(set) => set | SET_BIT,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Holdings {
    arena: Arena,
    table: HashTable,
    /// The nodes without a parent once more: few, so that their table stays in the CPU's cache, where most queries begin
    /// and those of unknown prompts end.
    roots: HashTable,
    sets: RowSets,
    /// Pairs of nodes with several rows that are not the usual ones.
    unusual: SpreadMap<(NodeId, u32), Pair>,
}

impl Holdings {
    /// More nodes than this do not fit: `Pair::children` and the table's ids have fewer than 32 bits.
    pub(super) const MAX_BLOCKS: usize = 1 << 28;

    pub(super) fn blocks(&self) -> usize {
        self.arena.live()
    }

    pub(super) fn bytes(&self) -> usize {
        let unusual = self.unusual.capacity() * size_of::<((NodeId, u32), Pair)>();
        self.arena.bytes() + self.table.bytes() + self.roots.bytes() + self.sets.bytes() + unusual
    }

    /// Prepares to find these blocks; for speed only.
    pub(super) fn warm(&self, blocks: &[SequenceHash]) {
        self.table.warm(blocks.iter().map(|block| block.0));
    }

    pub(super) fn find(&self, hash: SequenceHash) -> Option<NodeId> {
        self.table.find(hash.0, |id| self.arena.get(id).hash() == hash)
    }

    /// The node of a block without a parent.
    pub(super) fn find_root(&self, hash: SequenceHash) -> Option<NodeId> {
        self.roots.find(hash.0, |id| self.arena.get(id).hash() == hash)
    }

    /// Whether any row holds the block, but for a small chance that one is said to hold it though none does.
    pub(super) fn may_hold(&self, hash: SequenceHash) -> bool {
        self.table.may_hold(hash.0)
    }

    pub(super) fn hash(&self, id: NodeId) -> SequenceHash {
        self.arena.get(id).hash()
    }

    /// The block before, or [`NO_NODE`].
    pub(super) fn parent(&self, id: NodeId) -> NodeId {
        self.arena.get(id).parent
    }

    pub(super) fn holder(&self, id: NodeId) -> Holder {
        Holder::of(self.arena.get(id))
    }

    /// The rows of one node, sorted.
    pub(super) fn rows<'a>(&'a self, holder: &'a Holder) -> &'a [u32] {
        match holder {
            Holder::Row(row) => std::slice::from_ref(row),
            Holder::Set(set) => self.sets.rows(*set),
        }
    }

    pub(super) fn holds(&self, holder: Holder, row: u32) -> bool {
        match holder {
            Holder::Row(only) => only == row,
            Holder::Set(set) => self.sets.contains(set, row),
        }
    }

    /// The pair of `row` and `id`, if the row holds the block.
    pub(super) fn pair(&self, id: NodeId, row: u32) -> Option<Pair> {
        let node = self.arena.get(id);
        let holder = Holder::of(node);
        if !self.holds(holder, row) {
            return None;
        }
        Some(match holder {
            Holder::Row(_) => Pair::from_bits(node.detail),
            Holder::Set(_) => self.unusual.get(&(id, row)).copied().unwrap_or(Pair::USUAL),
        })
    }

    /// Whether any row holds `id` off the device only.
    pub(super) fn is_mixed(&self, id: NodeId) -> bool {
        let node = self.arena.get(id);
        match Holder::of(node) {
            Holder::Row(_) => Pair::from_bits(node.detail).is_off_device(),
            Holder::Set(_) => node.detail > 0,
        }
    }

    /// Changes a pair that exists.
    pub(super) fn set_pair(&mut self, id: NodeId, row: u32, pair: Pair) {
        match self.holder(id) {
            Holder::Row(_) => self.arena.get_mut(id).detail = pair.bits(),
            Holder::Set(_) => {
                self.take_shared(id, row);
                self.put_shared(id, row, pair);
            }
        }
    }

    /// A new block, held by one row. If the hash has a node already, nothing changes and that node is the error.
    pub(super) fn create(
        &mut self,
        hash: SequenceHash,
        parent: NodeId,
        row: u32,
        pair: Pair,
    ) -> Result<NodeId, NodeId> {
        let id = self.arena.next_id();
        let Self { arena, table, roots, .. } = self;
        let is_it = |id| arena.get(id).hash() == hash;
        table.insert(hash.0, id, is_it)?;
        if parent == NO_NODE {
            roots.insert(hash.0, id, is_it)?;
        }
        Ok(arena.add(hash, parent, Holder::Row(row).bits(), pair.bits()))
    }

    /// One more row for a block that others hold.
    pub(super) fn add_row(&mut self, id: NodeId, row: u32, pair: Pair) {
        let set = match self.holder(id) {
            Holder::Row(first) => {
                let set = self.sets.pair(first, row);
                let node = self.arena.get_mut(id);
                let first_pair = Pair::from_bits(std::mem::take(&mut node.detail));
                self.put_shared(id, first, first_pair);
                set
            }
            Holder::Set(fewer) => {
                let set = self.sets.with(fewer, row);
                self.sets.release(fewer);
                set
            }
        };
        self.arena.get_mut(id).holder = Holder::Set(set).bits();
        self.put_shared(id, row, pair);
    }

    /// Ends a pair that exists; a block without rows is forgotten.
    pub(super) fn remove_row(&mut self, id: NodeId, row: u32) {
        match self.holder(id) {
            Holder::Row(_) => {
                let hash = self.hash(id).0;
                self.table.remove(hash, id);
                if self.parent(id) == NO_NODE {
                    self.roots.remove(hash, id);
                }
                self.arena.free(id);
            }
            Holder::Set(more) => {
                self.take_shared(id, row);
                let rest = self.sets.without(more, row);
                let holder = match rest {
                    Rest::Set(set) => Holder::Set(set),
                    Rest::One(last) => {
                        let pair = self.take_shared(id, last);
                        self.arena.get_mut(id).detail = pair.bits();
                        Holder::Row(last)
                    }
                };
                self.arena.get_mut(id).holder = holder.bits();
                self.sets.release(more);
            }
        }
    }

    /// Every block that is held, with its holder.
    pub(super) fn scan(&self) -> impl Iterator<Item = (NodeId, Holder)> {
        (0..self.span()).filter_map(|id| Some((id, self.occupied(id)?)))
    }

    /// How far [`Holdings::occupied`] has to look.
    pub(super) fn span(&self) -> NodeId {
        self.arena.span()
    }

    /// The holder of the node at a scanned position, unless there is none.
    pub(super) fn occupied(&self, id: NodeId) -> Option<Holder> {
        self.arena.occupied(id).map(Holder::of)
    }

    /// The node's ancestors and itself, first block first; `into` is emptied before.
    pub(super) fn path(&self, id: NodeId, into: &mut Vec<NodeId>) {
        into.clear();
        let mut at = id;
        while at != NO_NODE {
            into.push(at);
            at = self.parent(at);
        }
        into.reverse();
    }

    /// Gives memory back after many removals.
    pub(super) fn shrink(&mut self) {
        self.unusual.shrink_to(self.unusual.len() * 2);
    }

    fn put_shared(&mut self, id: NodeId, row: u32, pair: Pair) {
        if pair != Pair::USUAL {
            self.unusual.insert((id, row), pair);
            self.arena.get_mut(id).detail += u32::from(pair.is_off_device());
        }
    }

    fn take_shared(&mut self, id: NodeId, row: u32) -> Pair {
        let Some(pair) = self.unusual.remove(&(id, row)) else {
            return Pair::USUAL;
        };
        self.arena.get_mut(id).detail -= u32::from(pair.is_off_device());
        pair
    }
}
