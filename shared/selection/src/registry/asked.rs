//! What others ask the registry's task: how its index stands. It is answered by the task that writes the index, so digests
//! and sequence numbers are of one moment.

use super::{ingest::Ingest, partitions::PartitionRows};
use crate::status::IndexRow;
use std::collections::{BTreeMap, HashMap};
use switchtower_ids::{PartitionId, Tier};
use switchtower_kv::index::{RowSlot, TierDigest};
use switchtower_scheduling::RowInfo;
use tokio::sync::{mpsc, oneshot};

/// Questions that may wait; each looks at the whole index.
const QUESTIONS_MAX: usize = 16;

/// Where the answer goes.
pub(super) type Question = oneshot::Sender<Vec<IndexRow>>;

/// Asks the registry's task. Cheap to clone.
#[derive(Clone)]
pub(crate) struct IndexQuestions(mpsc::Sender<Question>);

impl IndexQuestions {
    /// The handle, and the queue that the task reads.
    pub(crate) fn channel() -> (Self, mpsc::Receiver<Question>) {
        let (sender, queue) = mpsc::channel(QUESTIONS_MAX);
        (Self(sender), queue)
    }

    /// Every row by partition; empty if the task has ended.
    pub(crate) async fn index_rows(&self) -> Vec<IndexRow> {
        let (reply, answer) = oneshot::channel();
        match self.0.send(reply).await {
            Ok(()) => answer.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

/// The index of every partition. A row has an entry for the device and for each other tier in which it holds something.
pub(super) fn index_rows(
    partitions: &BTreeMap<PartitionId, PartitionRows>,
    ingest: &Ingest,
) -> Vec<IndexRow> {
    let mut rows = Vec::new();
    for (id, existing) in partitions {
        let digests: HashMap<RowSlot, _> = existing.partition.index.digests().into_iter().collect();
        let mut infos: Vec<&RowInfo> = existing.rows.iter().collect();
        infos.sort_unstable_by_key(|info| info.row);
        for info in infos {
            let tiers = digests.get(&info.slot).copied().unwrap_or_default();
            rows.extend(tier_rows(id, info, ingest, tiers));
        }
    }
    rows
}

fn tier_rows(
    id: &PartitionId,
    info: &RowInfo,
    ingest: &Ingest,
    tiers: [TierDigest; Tier::ALL.len()],
) -> impl Iterator<Item = IndexRow> {
    let standing = ingest.standing(info.row);
    let shown = Tier::ALL.into_iter().zip(tiers);
    let shown = shown.filter(|(tier, held)| *tier == Tier::Device || held.blocks > 0);
    shown.map(move |(tier, TierDigest { blocks, digest })| IndexRow {
        partition: id.clone(),
        worker_id: info.row.worker,
        rank: info.row.rank,
        tier,
        blocks,
        digest,
        sequence: standing.map(|standing| standing.applied),
        repairing: standing.is_some_and(|standing| standing.is_repairing),
    })
}
