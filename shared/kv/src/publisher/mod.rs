//! The publisher beside an engine: turns what the engine says about one rank's cache into that rank's event log.
//!
//! Engines evict in any order, announce blocks whose parents they never announced, and repeat themselves. Readers
//! of the log are promised more ([`crate::event`]): contiguous numbers, sets instead of copies, and blocks that
//! are prefix-closed over the union of tiers. The publisher makes up the difference:
//!
//! - **Sets.** A block is in a tier or it is not. Storing it again announces nothing; removing it once removes it,
//!   however many physical copies the engine had. That may count too little, never too much.
//! - **Prefix-closed.** Only blocks whose every ancestor is held are *visible* (announced). When a block leaves its
//!   last tier, its visible descendants are withdrawn first, deepest first; the engine still holds them, so they are
//!   *parked* here, and announced again when the missing block comes back. Blocks stored before their parent are
//!   parked likewise.
//! - **Bounded.** See [`PublisherLimits`]. Parked blocks beyond the limit are forgotten, deepest first.
//!
//! Called by the engine simulator's driver and by the worker agent, one publisher per (incarnation, rank). It
//! sends nothing itself: new events are appended to the caller's list.

mod ring;
mod tree;

use crate::event::{KvEvent, RangeAnswer, SequencedEvent, Snapshot, SnapshotRun};
use crate::runs::{HeldBlock, runs};
use crate::spread::SpreadSet;
use crate::tiers::Tiers;
use ring::EventRing;
use switchtower_ids::{SequenceHash, Tier};
use tree::{BlockTree, NodeId, Parent};

/// What one publisher may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublisherLimits {
    /// Past events kept for readers that missed some.
    pub ring_events: usize,
    /// Blocks named by those events, together.
    pub ring_blocks: usize,
    /// Distinct blocks followed, parked ones included: more than the engine's cache has, all tiers together.
    pub held_blocks: usize,
    /// Blocks that are followed but not announced, because an ancestor is missing.
    pub parked_blocks: usize,
}

impl Default for PublisherLimits {
    fn default() -> Self {
        Self { ring_events: 8_192, ring_blocks: 1 << 20, held_blocks: 1 << 22, parked_blocks: 1 << 18 }
    }
}

/// A change that was refused whole; nothing is recorded and nothing announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpublished {
    /// Equal sequence hashes mean equal prefixes, so a block cannot have two parents.
    #[error("block {:016x} is stored after another parent than before: check the engine's block hash mapping", .block.0)]
    ParentConflict {
        /// The block.
        block: SequenceHash,
    },
    /// The chain names a block twice, or names its own parent.
    #[error("block {:016x} appears twice in one stored chain: check the engine's block hash mapping", .block.0)]
    Repeated {
        /// The block.
        block: SequenceHash,
    },
    /// More blocks than the limit allows.
    #[error("{blocks} more blocks would exceed the limit of {limit} held blocks: raise `held_blocks`")]
    Full {
        /// Blocks in the chain.
        blocks: usize,
        /// [`PublisherLimits::held_blocks`].
        limit: usize,
    },
    /// The chain has no visible parent and there is no room to park it.
    #[error(
        "{blocks} blocks without a known parent would exceed the limit of {limit}: raise `parked_blocks`"
    )]
    Orphaned {
        /// Blocks in the chain.
        blocks: usize,
        /// [`PublisherLimits::parked_blocks`].
        limit: usize,
    },
    /// [`KvEvent::Unknown`] cannot be published.
    #[error("an event of unknown kind cannot be published: update the agent beside the engine")]
    UnknownKind,
}

/// One rank's cache and its log, in one life of its worker.
#[derive(Debug, Default)]
pub struct Publisher {
    limits: PublisherLimits,
    tree: BlockTree,
    visible: usize,
    ring: EventRing,
}

impl Publisher {
    /// A publisher whose log is empty.
    #[must_use]
    pub fn new(limits: PublisherLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes one change as the engine reports it and appends the events that follow from it to `out`: none, if
    /// nothing visible changed; several, if descendants have to be withdrawn or come back.
    pub fn observe(&mut self, change: &KvEvent, out: &mut Vec<SequencedEvent>) -> Result<(), Unpublished> {
        match change {
            KvEvent::Stored { tier, parent, blocks } => {
                self.check_chain(*parent, blocks)?;
                let shown = self.store(*tier, *parent, blocks);
                self.announce(runs(&shown).into_iter().map(KvEvent::from), out);
            }
            KvEvent::Removed { tier, blocks } => {
                let gone = self.remove(*tier, blocks);
                self.announce(removals(&gone), out);
            }
            KvEvent::Cleared => {
                self.tree = BlockTree::default();
                self.visible = 0;
                self.announce([KvEvent::Cleared], out);
            }
            KvEvent::Unknown => return Err(Unpublished::UnknownKind),
        }
        Ok(())
    }

    /// The number of the newest event; 0 before the first.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.ring.last_seq()
    }

    /// How many distinct blocks are announced now.
    #[must_use]
    pub fn visible_blocks(&self) -> usize {
        self.visible
    }

    /// How many blocks are followed but not announced, for want of an ancestor.
    #[must_use]
    pub fn parked_blocks(&self) -> usize {
        self.tree.len() - self.visible
    }

    /// Every event from number `from` on (0 and 1 mean from the start), or a snapshot if some are forgotten.
    #[must_use]
    pub fn range(&self, from: u64) -> RangeAnswer {
        match self.ring.range(from, usize::MAX) {
            Some(events) => RangeAnswer::Events { events },
            None => RangeAnswer::TooOld { snapshot: self.snapshot() },
        }
    }

    /// At most `most` events from number `from` on, or `None` if some of them are forgotten.
    #[must_use]
    pub fn events_from(&self, from: u64, most: usize) -> Option<Vec<SequencedEvent>> {
        self.ring.range(from, most)
    }

    /// Everything announced now, as of [`Publisher::last_seq`].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { seq: self.last_seq(), blocks: runs(&self.tree.visible()) }
    }

    fn announce(&mut self, events: impl IntoIterator<Item = KvEvent>, out: &mut Vec<SequencedEvent>) {
        for event in events {
            out.push(self.ring.push(event, &self.limits));
        }
    }

    /// Refuses a chain that contradicts what is known, or is too much.
    fn check_chain(&self, parent: Option<SequenceHash>, blocks: &[SequenceHash]) -> Result<(), Unpublished> {
        let mut named: SpreadSet<SequenceHash> = parent.into_iter().collect();
        let mut previous = parent;
        let mut fills_ghost = false;
        for &block in blocks {
            if !named.insert(block) {
                return Err(Unpublished::Repeated { block });
            }
            let known = self.tree.find(block).map(|id| self.tree.node(id).parent);
            fills_ghost |= known == Some(Parent::Unknown);
            let fits = match known {
                None | Some(Parent::Unknown) => true,
                Some(Parent::Root) => previous.is_none(),
                Some(Parent::Node(known)) => previous == Some(self.tree.node(known).hash),
            };
            if !fits {
                return Err(Unpublished::ParentConflict { block });
            }
            previous = Some(block);
        }
        let parent_id = parent.and_then(|parent| self.tree.find(parent));
        // A ghost that gets a parent now must not be above that parent: the tree would become a ring.
        if fills_ghost
            && let Some(top) = parent_id.map(|id| self.tree.node(self.tree.top(id)).hash)
            && Some(top) != parent
            && named.contains(&top)
        {
            return Err(Unpublished::ParentConflict { block: top });
        }
        self.check_room(parent, parent_id, blocks)
    }

    fn check_room(
        &self,
        parent: Option<SequenceHash>,
        parent_id: Option<NodeId>,
        blocks: &[SequenceHash],
    ) -> Result<(), Unpublished> {
        let unknown = |block: &SequenceHash| self.tree.find(*block).is_none();
        let added = blocks.iter().chain(&parent).filter(|block| unknown(block)).count();
        let (blocks, limit) = (blocks.len(), self.limits.held_blocks);
        if self.tree.len() + added > limit {
            return Err(Unpublished::Full { blocks, limit });
        }
        let parked = parent.is_some() && !parent_id.is_some_and(|id| self.tree.node(id).visible);
        let limit = self.limits.parked_blocks;
        if parked && self.parked_blocks() + added > limit {
            return Err(Unpublished::Orphaned { blocks, limit });
        }
        Ok(())
    }

    /// Records a checked chain; returns what became visible, or visible in one more tier.
    fn store(&mut self, tier: Tier, parent: Option<SequenceHash>, blocks: &[SequenceHash]) -> Vec<HeldBlock> {
        let mut shown = Vec::new();
        if blocks.is_empty() {
            return shown;
        }
        let mut previous = match parent {
            None => Parent::Root,
            Some(parent) => Parent::Node(self.tree.find_or_ghost(parent)),
        };
        let mut appeared = Vec::new();
        for block in blocks {
            let id = self.tree.find_or_ghost(*block);
            if self.tree.node(id).parent == Parent::Unknown {
                self.tree.set_parent(id, previous);
            }
            let before = self.tree.node(id).tiers;
            self.tree.node_mut(id).tiers = before.with(tier);
            if !self.tree.node(id).visible {
                appeared.push(id);
            } else if !before.contains(tier) {
                shown.push(self.tree.held(id, Tiers::only(tier)));
            }
            previous = Parent::Node(id);
        }
        self.show(appeared, &mut shown);
        shown
    }

    /// Makes `appeared` (a chain) visible if its ancestors are, and then whatever was parked below it.
    fn show(&mut self, appeared: Vec<NodeId>, shown: &mut Vec<HeldBlock>) {
        let mut pending = appeared;
        pending.reverse();
        while let Some(id) = pending.pop() {
            let node = self.tree.node(id);
            let reachable = match node.parent {
                Parent::Root => true,
                Parent::Unknown => false,
                Parent::Node(parent) => self.tree.node(parent).visible,
            };
            if node.visible || node.tiers.is_empty() || !reachable {
                continue;
            }
            shown.push(self.tree.held(id, node.tiers));
            self.tree.node_mut(id).visible = true;
            self.visible += 1;
            pending.extend(self.tree.children(id));
        }
    }

    /// Records that `blocks` left `tier`; returns what is no longer visible in which tiers, descendants first.
    fn remove(&mut self, tier: Tier, blocks: &[SequenceHash]) -> Vec<(SequenceHash, Tiers)> {
        let mut gone = Vec::new();
        for &block in blocks {
            let Some(id) = self.tree.find(block) else { continue };
            let before = self.tree.node(id).tiers;
            if !before.contains(tier) {
                continue;
            }
            let left = before.without(tier);
            self.tree.node_mut(id).tiers = left;
            let visible = self.tree.node(id).visible;
            if visible && left.is_empty() {
                self.hide_below(id, &mut gone);
                self.tree.node_mut(id).visible = false;
                self.visible -= 1;
            }
            if visible {
                gone.push((block, Tiers::only(tier)));
            }
            self.prune(id);
        }
        gone
    }

    /// Withdraws the descendants of `id`, which is about to be hidden itself, and forgets those that cannot be parked.
    fn hide_below(&mut self, id: NodeId, gone: &mut Vec<(SequenceHash, Tiers)>) {
        let below = self.tree.descendants_leaves_first(id);
        for &descendant in &below {
            let node = self.tree.node_mut(descendant);
            if std::mem::take(&mut node.visible) {
                gone.push((node.hash, node.tiers));
                self.visible -= 1;
            }
        }
        let parked = self.parked_blocks() + 1;
        let excess = parked.saturating_sub(self.limits.parked_blocks);
        for &descendant in below.iter().take(excess) {
            self.tree.remove(descendant);
        }
    }

    /// Removes `id` if it is a ghost without children, and then the ghosts above that are left without any.
    fn prune(&mut self, mut id: NodeId) {
        while self.tree.node(id).tiers.is_empty() && self.tree.children(id).next().is_none() {
            let parent = self.tree.node(id).parent;
            self.tree.remove(id);
            let Parent::Node(parent) = parent else { return };
            id = parent;
        }
    }
}

/// Removal events for `gone`, in its order, consecutive blocks with the same tiers together.
fn removals(gone: &[(SequenceHash, Tiers)]) -> impl Iterator<Item = KvEvent> {
    let alike = gone.chunk_by(|a, b| a.1 == b.1).flat_map(|group| group.chunks(SnapshotRun::MAX_BLOCKS));
    alike.flat_map(|group| {
        let tiers = group.first().map_or(Tiers::NONE, |(_, tiers)| *tiers);
        let blocks: Vec<_> = group.iter().map(|(block, _)| *block).collect();
        tiers.iter().map(move |tier| KvEvent::Removed { tier, blocks: blocks.clone() })
    })
}

#[cfg(test)]
mod tests;
