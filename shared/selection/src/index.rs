//! The prefix index of one partition, written by the ingestor and read by the scheduler; and beside it, where prediction is
//! on, what its rows are about to hold.

use parking_lot::{Mutex, RwLock};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use switchtower_ids::{SequenceHash, Tier};
use switchtower_kv::{
    event::{KvEvent, Snapshot},
    index::{IndexStats, Overlap, PrefixIndex, Refused, RowSlot, TierDigest},
};
use switchtower_scheduling::OverlapIndex;

/// A shared index. Locks are held for one call, never across a wait or a policy's: the ingestor, which serves every
/// partition, must not stand still because one policy does (B74).
#[derive(Clone, Default)]
pub(crate) struct SharedIndex(Arc<Indexes>);

#[derive(Default)]
struct Indexes {
    known: RwLock<PrefixIndex>,
    predicted: RwLock<PrefixIndex>,
    /// Whether there ever was a prediction: without any, a query looks at one index.
    predicts: AtomicBool,
    /// Space for what a query finds predicted.
    buffer: Mutex<Overlap>,
}

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
        let mut index = self.0.known.write();
        let mut first = Ok(());
        for event in events {
            first = first.and(index.apply(slot, event));
        }
        first
    }

    pub(crate) fn replace(&self, slot: RowSlot, snapshot: &Snapshot) -> Result<(), Refused> {
        self.0.known.write().replace(slot, snapshot)
    }

    pub(crate) fn drop_row(&self, slot: RowSlot) {
        self.0.known.write().drop_row(slot);
    }

    /// Applies what a row is about to do.
    pub(crate) fn predict(&self, slot: RowSlot, event: &KvEvent) -> Result<(), Refused> {
        self.0.predicts.store(true, Ordering::Relaxed);
        self.0.predicted.write().apply(slot, event)
    }

    pub(crate) fn drop_prediction(&self, slot: RowSlot) {
        self.0.predicted.write().drop_row(slot);
    }

    /// Counts and sizes of what is known.
    pub(crate) fn stats(&self) -> IndexStats {
        self.0.known.read().stats()
    }

    /// Digests of what is known.
    pub(crate) fn digests(&self) -> Vec<(RowSlot, [TierDigest; Tier::ALL.len()])> {
        self.0.known.read().digests()
    }
}

impl OverlapIndex for SharedIndex {
    fn overlap(&self, blocks: &[SequenceHash], overlap: &mut Overlap) {
        self.0.known.read().overlap(blocks, overlap);
        if self.0.predicts.load(Ordering::Relaxed) {
            let mut predicted = self.0.buffer.lock();
            self.0.predicted.read().overlap(blocks, &mut predicted);
            for slot in predicted.touched() {
                overlap.raise(*slot, predicted.blocks(*slot).total());
            }
        }
    }
}
