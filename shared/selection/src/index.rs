//! The prefix index of one partition, written by the ingestor and read by the scheduler.

use parking_lot::RwLock;
use std::sync::Arc;
use switchtower_ids::SequenceHash;
use switchtower_kv::{
    event::{KvEvent, Snapshot},
    index::{IndexStats, Overlap, PrefixIndex, Refused, RowSlot},
};
use switchtower_scheduling::OverlapIndex;

/// A shared index. Locks are held for one call, never across a wait or a policy's: the ingestor, which serves every
/// partition, must not stand still because one policy does (B74).
#[derive(Clone, Default)]
pub(crate) struct SharedIndex(Arc<RwLock<PrefixIndex>>);

impl SharedIndex {
    /// Whether both are the same index.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Applies events in order. Returns the first refusal: the row's state is in doubt then.
    pub(crate) fn apply<'a>(
        &self,
        slot: RowSlot,
        events: impl Iterator<Item = &'a KvEvent>,
    ) -> Result<(), Refused> {
        let mut index = self.0.write();
        let mut first = Ok(());
        for event in events {
            first = first.and(index.apply(slot, event));
        }
        first
    }

    pub(crate) fn replace(&self, slot: RowSlot, snapshot: &Snapshot) -> Result<(), Refused> {
        self.0.write().replace(slot, snapshot)
    }

    pub(crate) fn drop_row(&self, slot: RowSlot) {
        self.0.write().drop_row(slot);
    }

    pub(crate) fn stats(&self) -> IndexStats {
        self.0.read().stats()
    }
}

impl OverlapIndex for SharedIndex {
    fn overlap(&self, blocks: &[SequenceHash], overlap: &mut Overlap) {
        self.0.read().overlap(blocks, overlap);
    }
}
