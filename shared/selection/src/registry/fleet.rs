//! From discovery's records to the rows that every partition should have. Pure: no IO, no hints from one state to the
//! next; the same records always give the same rows.

use super::RefusedRecord;
use crate::records::WorkerRecord;
use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc};
use switchtower_cluster::{Entry, Snapshot, WatchEvent};
use switchtower_ids::{PartitionId, Rank, Row};

/// What is kept or logged of a reason, which may quote what somebody else wrote.
pub(super) const REASON_CHARS_MAX: usize = 256;

/// A record that parses, and when it was written.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    record: WorkerRecord,
    created: u64,
    revision: u64,
}

/// The records of discovery.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    known: BTreeMap<String, Known>,
    unreadable: BTreeMap<String, String>,
    synced: bool,
}

/// One row that a partition should have. The index slot is the caller's to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WantedRow {
    pub(super) row: Row,
    pub(super) incarnation: switchtower_ids::Incarnation,
    pub(super) revision: u64,
    pub(super) endpoint: Arc<str>,
    pub(super) taints: Arc<[String]>,
    pub(super) draining: bool,
    pub(super) total_blocks: Option<u64>,
    pub(super) max_batch_tokens: Option<u64>,
}

/// What one partition should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WantedPartition {
    pub(super) block_size: NonZeroU32,
    pub(super) rows: Vec<WantedRow>,
}

/// What the fleet should be.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) partitions: BTreeMap<PartitionId, WantedPartition>,
    pub(super) refused: Vec<RefusedRecord>,
}

impl Fleet {
    /// Takes in a change.
    pub(super) fn apply(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Resync(snapshot) => self.resync(snapshot),
            WatchEvent::Put(entry) => self.put(entry),
            WatchEvent::Delete { key, .. } => self.delete(&key),
        }
    }

    fn resync(&mut self, snapshot: Snapshot) {
        *self = Self { synced: true, ..Self::default() };
        snapshot.entries.into_iter().for_each(|entry| self.put(entry));
    }

    /// A record that does not parse takes the place of the one before it: its worker says something that we do not
    /// understand, and what it said before may not hold.
    fn put(&mut self, entry: Entry) {
        self.delete(&entry.key);
        match WorkerRecord::parse(&entry.key, &entry.value) {
            Ok(record) => {
                let known = Known { record, created: entry.create_revision.0, revision: entry.revision.0 };
                self.known.insert(entry.key, known);
            }
            Err(error) => {
                let reason = error.to_string().chars().take(REASON_CHARS_MAX).collect();
                self.unreadable.insert(entry.key, reason);
            }
        }
    }

    fn delete(&mut self, key: &str) {
        self.known.remove(key);
        self.unreadable.remove(key);
    }

    /// Whether a full snapshot has been seen.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// What follows from the records. The worker that registered first decides a partition's block size; others are
    /// refused until they agree.
    pub(super) fn wanted(&self) -> Wanted {
        let mut wanted = Wanted::default();
        let unreadable = self.unreadable.iter();
        wanted.refused.extend(
            unreadable.map(|(key, reason)| RefusedRecord { key: key.clone(), reason: reason.clone() }),
        );
        let mut by_age: Vec<_> = self.known.iter().collect();
        by_age.sort_by_key(|(_, known)| known.created);
        for (key, known) in by_age {
            if let Err(reason) = wanted.add(known) {
                wanted.refused.push(RefusedRecord { key: key.clone(), reason });
            }
        }
        wanted
    }
}

impl Wanted {
    fn add(&mut self, known: &Known) -> Result<(), String> {
        let record = &known.record;
        let Some(block_size) = NonZeroU32::new(record.block_size) else {
            return Err("`block_size` is 0".to_owned());
        };
        let id = record.partition();
        let partition = self
            .partitions
            .entry(id.clone())
            .or_insert_with(|| WantedPartition { block_size, rows: Vec::new() });
        if partition.block_size != block_size {
            let first = partition.block_size;
            return Err(format!(
                "`block_size` is {block_size}, but the first worker of partition {id} has {first}: start it with {first}"
            ));
        }
        partition.rows.extend(rows(known));
        Ok(())
    }
}

fn rows(known: &Known) -> impl Iterator<Item = WantedRow> {
    let record = &known.record;
    let endpoint: Arc<str> = record.endpoint.as_str().into();
    let taints: Arc<[String]> = record.taints.iter().cloned().collect();
    (0..record.ranks).map(move |rank| WantedRow {
        row: Row { worker: record.worker_id, rank: Rank(rank) },
        incarnation: record.incarnation,
        revision: known.revision,
        endpoint: Arc::clone(&endpoint),
        taints: Arc::clone(&taints),
        draining: record.draining,
        total_blocks: record.total_blocks,
        max_batch_tokens: record.max_batch_tokens,
    })
}

#[cfg(test)]
mod tests;
