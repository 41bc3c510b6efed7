//! The book's columns: one per row that is known or still has reservations.

use super::RowLoad;
use hashbrown::HashMap;
use switchtower_ids::{Life, Row};

#[derive(Debug, Default)]
struct BookRow {
    row: Option<Row>,
    /// The worker's life, while the registry knows the row.
    known: Option<Life>,
    /// Live reservations here, whether they count or not.
    reservations: u64,
    load: RowLoad,
}

/// A column whose life changed.
pub(super) struct Change {
    pub(super) before: Option<Life>,
    pub(super) after: Option<Life>,
}

/// Whether an entry of `life` counts on a row that is known in the life `known`: the row is known, and its life is not
/// newer (`book rule 6`).
pub(super) fn counts(known: Option<Life>, life: Life) -> bool {
    known.is_some_and(|known| life.is_current_beside(known))
}

/// Columns by row, with free ones used again.
#[derive(Debug, Default)]
pub(super) struct BookRows {
    slots: HashMap<Row, usize>,
    rows: Vec<BookRow>,
    free: Vec<usize>,
}

impl BookRows {
    /// The column of `row`, made if there is none.
    fn slot(&mut self, row: Row) -> usize {
        if let Some(slot) = self.slots.get(&row) {
            return *slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.rows.push(BookRow::default());
            self.rows.len() - 1
        });
        self.rows[slot] = BookRow { row: Some(row), ..BookRow::default() };
        self.slots.insert(row, slot);
        slot
    }

    pub(super) fn find(&self, row: Row) -> Option<usize> {
        self.slots.get(&row).copied()
    }

    pub(super) fn row(&self, slot: usize) -> Option<Row> {
        self.rows.get(slot).and_then(|entry| entry.row)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn counts(&self, slot: usize, life: Life) -> bool {
        counts(self.rows[slot].known, life)
    }

    pub(super) fn load(&self, slot: usize) -> &RowLoad {
        &self.rows[slot].load
    }

    pub(super) fn load_mut(&mut self, slot: usize) -> &mut RowLoad {
        &mut self.rows[slot].load
    }

    /// Makes `lives` the known lives. The changes, by column, say what has to be
    /// counted anew.
    pub(super) fn set_lives(
        &mut self,
        lives: impl IntoIterator<Item = (Row, Life)>,
    ) -> HashMap<usize, Change> {
        let known: HashMap<Row, Life> = lives.into_iter().collect();
        for row in known.keys() {
            self.slot(*row);
        }
        let mut changes = HashMap::new();
        for (slot, entry) in self.rows.iter_mut().enumerate() {
            let Some(row) = entry.row else { continue };
            let (before, after) = (entry.known, known.get(&row).copied());
            entry.known = after;
            if before != after {
                changes.insert(slot, Change { before, after });
            }
        }
        changes
    }

    /// Frees the columns of rows that are neither known nor booked.
    pub(super) fn sweep(&mut self) {
        for slot in 0..self.rows.len() {
            self.forget_if_unused(slot);
        }
    }

    /// One more reservation on `row`; returns its column.
    pub(super) fn enter(&mut self, row: Row) -> usize {
        let slot = self.slot(row);
        self.rows[slot].reservations += 1;
        slot
    }

    /// One reservation less in `slot`.
    pub(super) fn leave(&mut self, slot: usize) {
        self.rows[slot].reservations -= 1;
        self.forget_if_unused(slot);
    }

    /// Frees the column of a row that is unknown and has no reservations.
    fn forget_if_unused(&mut self, slot: usize) {
        let entry = &mut self.rows[slot];
        if entry.known.is_some() || entry.reservations > 0 {
            return;
        }
        if let Some(row) = entry.row.take() {
            self.slots.remove(&row);
            self.free.push(slot);
        }
    }
}
