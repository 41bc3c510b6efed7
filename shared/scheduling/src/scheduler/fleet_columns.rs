//! What decisions read of every row of the table, as columns in the table's order. Written when the fleet changes and when
//! an entry changes a row's load, so that a decision copies nothing.
//!
//! Blocks and tokens are kept as the `f64` that a policy's inputs are computed with: exact below 2⁵³.

use crate::{WorkerTable, book::Book};
use switchtower_kv::index::RowSlot;
use switchtower_policy::WorkerIdentity;

/// One column per signal; a row's place is its position in the table.
#[derive(Debug, Default)]
pub(super) struct FleetColumns {
    pub(super) workers: Vec<WorkerIdentity>,
    /// Where the prefix index counts the row's blocks.
    pub(super) slots: Vec<RowSlot>,
    /// Whether every row's slot is its position.
    pub(super) are_slots_in_order: bool,
    pub(super) active_prefill_tokens: Vec<u64>,
    pub(super) active_requests: Vec<u64>,
    /// The same as `active_prefill_tokens`.
    pub(super) prefill_tokens: Vec<f64>,
    pub(super) active_blocks: Vec<f64>,
    /// Position in the table → column in the book.
    columns: Vec<usize>,
    /// The other way round; none for columns of rows that are not in the table.
    positions: Vec<Option<usize>>,
}

impl FleetColumns {
    /// The columns of the rows of `table`, all of which `book` knows.
    pub(super) fn of(table: &WorkerTable, book: &Book) -> Self {
        let rows = table.rows();
        let mut fleet = Self {
            workers: rows.iter().map(|info| identity(info.row)).collect(),
            slots: rows.iter().map(|info| info.slot).collect(),
            are_slots_in_order: (0..).zip(rows).all(|(position, info)| info.slot == RowSlot(position)),
            active_prefill_tokens: vec![0; rows.len()],
            active_requests: vec![0; rows.len()],
            prefill_tokens: vec![0.0; rows.len()],
            active_blocks: vec![0.0; rows.len()],
            columns: rows.iter().filter_map(|info| book.column(info.row)).collect(),
            positions: Vec::new(),
        };
        debug_assert_eq!(fleet.columns.len(), rows.len(), "every known row has a column");
        fleet.positions.resize(fleet.columns.iter().max().map_or(0, |last| last + 1), None);
        for (position, column) in fleet.columns.iter().enumerate() {
            fleet.positions[*column] = Some(position);
        }
        for column in fleet.columns.clone() {
            fleet.refresh(book, column);
        }
        fleet
    }

    /// Position in the table → column in the book.
    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The position of the row that has this column in the book.
    pub(super) fn position(&self, column: usize) -> Option<usize> {
        self.positions.get(column).copied().flatten()
    }

    /// Takes over the load in a column of the book.
    pub(super) fn refresh(&mut self, book: &Book, column: usize) {
        let Some(position) = self.position(column) else { return };
        let load = book.load_at(column);
        self.active_prefill_tokens[position] = load.active_prefill_tokens;
        self.active_requests[position] = load.active_requests;
        self.prefill_tokens[position] = load.active_prefill_tokens as f64;
        self.active_blocks[position] = load.active_blocks() as f64;
    }
}

const fn identity(row: switchtower_ids::Row) -> WorkerIdentity {
    WorkerIdentity { worker_id: row.worker.0, dp_rank: row.rank.0 }
}
