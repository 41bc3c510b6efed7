//! The book: all live reservations, and the load per row that follows from them.
//!
//! A state to which numbered log entries are applied, strictly in sequence (`book rule 2`). Load is a function of the
//! entries applied and of which worker lives are known (`book rule 6`), in integers (`book rule 5`), so the order in
//! which logs and registry news arrive does not matter. The book decides nothing and has no clock of its own.
//!
//! One log for now: the replicated book applies one such log per replica.

mod aliases;
mod blocks;
mod entry;
mod load;
mod rows;

pub use aliases::Freed;
pub(crate) use blocks::keep_blocks;
pub use blocks::{KeptBlock, SharedBlocks, kept_blocks};
pub use entry::{Booked, Entry, Log, LogEntry};
pub use load::RowLoad;

use crate::Alias;
use aliases::Aliases;
use blocks::ActiveBlocks;
use hashbrown::HashMap;
use rows::{BookRows, Change};
use std::sync::Arc;
use switchtower_ids::{Life, ReservationKey, Row};

/// An entry that does not follow the last one applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {found} does not follow entry {applied}: repair the log from {}", applied + 1)]
pub struct OutOfSequence {
    /// The last entry applied.
    pub applied: u64,
    /// The entry refused.
    pub found: u64,
}

/// The columns whose load an entry may have changed; two, where a booking moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangedColumns([Option<usize>; 2]);

impl ChangedColumns {
    const fn one(column: usize) -> Self {
        Self([Some(column), None])
    }

    /// The columns.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().flatten()
    }
}

/// No entry counts for more tokens, or blocks of output, than this, whatever it says: callers name output totals, and
/// sums over 2²³ reservations stay far from overflow. Every replica counts alike.
const ENTRY_MAX: u64 = 1 << 40;

/// One live reservation.
#[derive(Clone, Debug)]
struct Live {
    attempt: u32,
    slot: usize,
    life: Life,
    /// Tokens still to be prefilled; 0 once the prefill is complete.
    prefill_tokens: u64,
    kept: Arc<[KeptBlock]>,
    output_blocks: u64,
    alias: Option<Arc<str>>,
}

/// All live reservations and the load that follows from them.
#[derive(Debug, Default)]
pub struct Book {
    applied: u64,
    live: HashMap<ReservationKey, Live>,
    rows: BookRows,
    blocks: ActiveBlocks,
    aliases: Aliases,
}

impl Book {
    /// Applies the next entry of the log at `now_ms`; returns whose load changed by it.
    ///
    /// # Errors
    /// An entry that is not the next in sequence is refused and changes nothing.
    pub fn apply(&mut self, now_ms: u64, entry: &LogEntry) -> Result<ChangedColumns, OutOfSequence> {
        if entry.sequence != self.applied + 1 {
            return Err(OutOfSequence { applied: self.applied, found: entry.sequence });
        }
        self.applied = entry.sequence;
        let changed = match &entry.entry {
            Entry::Booked(booked) => self.book(booked),
            Entry::PrefillComplete { key, attempt } => self.complete_prefill(*key, *attempt),
            Entry::OutputGrew { key, total_blocks } => self.grow_output(*key, *total_blocks),
            Entry::Released { key, by_caller } => self.release(now_ms, *key, *by_caller),
        };
        Ok(changed.unwrap_or_default())
    }

    /// A higher attempt replaces the lower one in one step; a repeated or lower one changes nothing (`book rule 4`).
    fn book(&mut self, booked: &Booked) -> Option<ChangedColumns> {
        if self.live.get(&booked.key).is_some_and(|live| live.attempt >= booked.attempt) {
            return None;
        }
        let replaced = self.live.remove(&booked.key);
        if let Some(replaced) = &replaced {
            self.uncount(replaced);
            self.rows.leave(replaced.slot);
            if let Some(alias) = &replaced.alias {
                self.aliases.release(alias, booked.key, None);
            }
        }
        let live = Live {
            attempt: booked.attempt,
            slot: self.rows.enter(booked.row),
            life: booked.life,
            prefill_tokens: booked.prefill_tokens.min(ENTRY_MAX),
            kept: Arc::clone(&booked.blocks),
            output_blocks: 0,
            alias: booked.alias.as_ref().map(|alias| Arc::clone(&alias.id)),
        };
        self.count(&live);
        if let Some(alias) = &booked.alias {
            self.aliases.bind(alias, booked.key);
        }
        let changed = ChangedColumns([Some(live.slot), replaced.map(|replaced| replaced.slot)]);
        self.live.insert(booked.key, live);
        Some(changed)
    }

    fn complete_prefill(&mut self, key: ReservationKey, attempt: u32) -> Option<ChangedColumns> {
        let live = self.live.get_mut(&key).filter(|live| live.attempt == attempt)?;
        let tokens = std::mem::take(&mut live.prefill_tokens);
        if self.rows.counts(live.slot, live.life) {
            self.rows.load_mut(live.slot).active_prefill_tokens -= tokens;
        }
        Some(ChangedColumns::one(live.slot))
    }

    /// `total_blocks` is absolute, merged by maximum (`book rule 4`).
    fn grow_output(&mut self, key: ReservationKey, total_blocks: u64) -> Option<ChangedColumns> {
        let live = self.live.get_mut(&key)?;
        let growth = total_blocks.min(ENTRY_MAX).saturating_sub(live.output_blocks);
        live.output_blocks += growth;
        if self.rows.counts(live.slot, live.life) {
            self.rows.load_mut(live.slot).output_blocks += growth;
        }
        Some(ChangedColumns::one(live.slot))
    }

    fn release(&mut self, now_ms: u64, key: ReservationKey, by_caller: bool) -> Option<ChangedColumns> {
        let live = self.live.remove(&key)?;
        self.uncount(&live);
        if let Some(alias) = &live.alias {
            self.aliases.release(alias, key, by_caller.then_some(now_ms));
        }
        self.rows.leave(live.slot);
        Some(ChangedColumns::one(live.slot))
    }

    fn count(&mut self, live: &Live) {
        if self.rows.counts(live.slot, live.life) {
            self.add(live);
        }
    }

    fn uncount(&mut self, live: &Live) {
        if self.rows.counts(live.slot, live.life) {
            self.subtract(live);
        }
    }

    fn add(&mut self, live: &Live) {
        let load = self.rows.load_mut(live.slot);
        load.active_requests += 1;
        load.active_prefill_tokens += live.prefill_tokens;
        load.output_blocks += live.output_blocks;
        load.prompt_blocks += self.blocks.add(live.slot, &live.kept);
    }

    fn subtract(&mut self, live: &Live) {
        let load = self.rows.load_mut(live.slot);
        load.active_requests -= 1;
        load.active_prefill_tokens -= live.prefill_tokens;
        load.output_blocks -= live.output_blocks;
        load.prompt_blocks -= self.blocks.remove(live.slot, &live.kept);
    }

    /// Tells the book which worker lives exist. Entries of rows that are not here, or of a life older than the one
    /// here, count for nothing; they stay, because only their holder ends them (`book rule 10`).
    pub fn set_lives(&mut self, lives: impl IntoIterator<Item = (Row, Life)>) {
        let changes = self.rows.set_lives(lives);
        if !changes.is_empty() {
            self.recount(&changes);
        }
        self.rows.sweep();
    }

    /// One pass over the reservations, however many rows changed.
    fn recount(&mut self, changes: &HashMap<usize, Change>) {
        let affected: Vec<Live> =
            self.live.values().filter(|live| changes.contains_key(&live.slot)).cloned().collect();
        for live in affected {
            let Some(change) = changes.get(&live.slot) else { continue };
            match (rows::counts(change.before, live.life), rows::counts(change.after, live.life)) {
                (false, true) => self.add(&live),
                (true, false) => self.subtract(&live),
                _ => {}
            }
        }
    }

    /// The load of a row; all zero for one that the book has not heard of.
    #[must_use]
    pub fn load(&self, row: Row) -> RowLoad {
        self.rows.find(row).map_or_else(RowLoad::default, |slot| *self.rows.load(slot))
    }

    /// The book's own column for `row`, for [`load_at`](Self::load_at) and [`shared_blocks`](Self::shared_blocks).
    /// Stays valid while the row is known.
    #[must_use]
    pub fn column(&self, row: Row) -> Option<usize> {
        self.rows.find(row)
    }

    /// The load in a column.
    #[must_use]
    pub fn load_at(&self, column: usize) -> &RowLoad {
        self.rows.load(column)
    }

    /// For every column, how many blocks of `kept`, the kept blocks of one prompt, are active there already; `shared` is
    /// overwritten.
    pub fn shared_blocks(&self, kept: &[KeptBlock], shared: &mut SharedBlocks) {
        shared.reset(self.rows.len());
        self.blocks.shared(kept, shared);
    }

    /// Number of live reservations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether nothing is booked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// The attempt that is booked under `key`.
    #[must_use]
    pub fn attempt(&self, key: ReservationKey) -> Option<u32> {
        self.live.get(&key).map(|live| live.attempt)
    }

    /// The row that `key` is booked on.
    #[must_use]
    pub fn row(&self, key: ReservationKey) -> Option<Row> {
        self.live.get(&key).and_then(|live| self.rows.row(live.slot))
    }

    /// The live reservation that a caller knows under this alias, with its fingerprint.
    #[must_use]
    pub fn by_alias(&self, id: &str) -> Option<(ReservationKey, u64)> {
        self.aliases.find(id)
    }

    /// What freeing `id` at `now_ms` would find.
    #[must_use]
    pub fn freed(&self, now_ms: u64, id: &str) -> Freed {
        self.aliases.freed(now_ms, id)
    }

    /// Distinct block hashes that the book keeps: a measure of its memory.
    #[must_use]
    pub fn kept_hashes(&self) -> usize {
        self.blocks.len()
    }
}

impl Alias {
    /// Whether `fingerprint` is of the same request.
    #[must_use]
    pub const fn is_same_request(&self, fingerprint: u64) -> bool {
        self.fingerprint == fingerprint
    }
}

#[cfg(test)]
mod tests;
