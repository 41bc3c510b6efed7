//! From discovery's records to the rows that every partition should have. Pure: no IO, no hints from one state to the
//! next; the same records always give the same rows.

mod wanted;

pub(super) use wanted::{Wanted, WantedPartition, WantedRow};

use super::{
    RefusedRecord,
    feed::{FeedEvent, Source},
};
use crate::records::{DrainSetting, RecordError, RefusedClaim, WorkerRecord};
use std::collections::{BTreeMap, BTreeSet};
use switchtower_cluster::{Entry, WatchEvent};
use switchtower_ids::WorkerId;

/// What is kept or logged of a reason, which may quote what somebody else wrote.
pub(super) const REASON_CHARS_MAX: usize = 256;

/// A record that parses, and when it was written.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    record: WorkerRecord,
    created: u64,
    revision: u64,
}

/// The records of discovery, by key.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    known: BTreeMap<String, Known>,
    drains: BTreeMap<String, DrainSetting>,
    refused: BTreeMap<String, RefusedRecord>,
    synced: BTreeSet<Source>,
}

impl Fleet {
    /// Takes in a change.
    pub(super) fn apply(&mut self, FeedEvent { source, event }: FeedEvent) {
        match event {
            WatchEvent::Resync(snapshot) => {
                self.forget(source);
                self.synced.insert(source);
                snapshot.entries.into_iter().for_each(|entry| self.put(source, &entry));
            }
            WatchEvent::Put(entry) => self.put(source, &entry),
            WatchEvent::Delete { key, .. } => self.delete(&key),
        }
    }

    fn forget(&mut self, source: Source) {
        let is_of = |key: &str| key.starts_with(source.prefix());
        self.known.retain(|key, _| !is_of(key));
        self.drains.retain(|key, _| !is_of(key));
        self.refused.retain(|key, _| !is_of(key));
    }

    /// A record that does not parse takes the place of the one before it: whoever wrote it says something that we do not
    /// understand, and what was said before may not hold.
    fn put(&mut self, source: Source, entry: &Entry) {
        self.delete(&entry.key);
        let read = match source {
            Source::Workers => self.put_worker(entry),
            Source::Drains => self.put_drain(entry),
            Source::Claims => self.put_claim(entry),
        };
        if let Err(error) = read {
            self.refuse(&entry.key, error.label(), &error.to_string());
        }
    }

    fn put_worker(&mut self, entry: &Entry) -> Result<(), RecordError> {
        let record = WorkerRecord::parse(&entry.key, &entry.value)?;
        let known = Known { record, created: entry.create_revision.0, revision: entry.revision.0 };
        self.known.insert(entry.key.clone(), known);
        Ok(())
    }

    fn put_drain(&mut self, entry: &Entry) -> Result<(), RecordError> {
        let setting = DrainSetting::parse(&entry.key, &entry.value)?;
        self.drains.insert(entry.key.clone(), setting);
        Ok(())
    }

    /// Whoever claims another one's id does not take part.
    fn put_claim(&mut self, entry: &Entry) -> Result<(), RecordError> {
        let claim = RefusedClaim::parse(&entry.key, &entry.value)?;
        self.refuse(&entry.key, "id_taken", &claim.reason);
        Ok(())
    }

    fn refuse(&mut self, key: &str, kind: &'static str, reason: &str) {
        let reason = reason.chars().filter(|letter| !letter.is_control()).take(REASON_CHARS_MAX).collect();
        let refused = RefusedRecord { key: key.to_owned(), kind, reason };
        self.refused.insert(key.to_owned(), refused);
    }

    fn delete(&mut self, key: &str) {
        self.known.remove(key);
        self.drains.remove(key);
        self.refused.remove(key);
    }

    /// Whether a full snapshot has been seen.
    pub(super) fn is_synced(&self) -> bool {
        self.synced.len() == Source::ALL.len()
    }

    fn drain_of(&self, worker: WorkerId) -> Option<&DrainSetting> {
        self.drains.get(&DrainSetting::key_of(worker))
    }

    /// What follows from the records.
    pub(super) fn wanted(&self) -> Wanted {
        let mut wanted = Wanted::with_block_sizes(self.known.values());
        wanted.refused.extend(self.refused.values().cloned());
        for (key, known) in &self.known {
            if let Err(reason) = wanted.add(known, self.drain_of(known.record.worker_id)) {
                wanted.refused.push(RefusedRecord { key: key.clone(), kind: "block_size", reason });
            }
        }
        wanted.workers.sort_by_key(|worker| worker.worker_id);
        wanted
    }
}

#[cfg(test)]
mod tests;
