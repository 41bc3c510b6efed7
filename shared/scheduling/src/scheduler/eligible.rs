//! The rows that may take the request at hand. Nearly always these are all rows, which need not be listed anew then.

/// Positions in the table, in order; used again from request to request.
#[derive(Debug, Default)]
pub(super) struct Eligible {
    positions: Vec<usize>,
    are_all: bool,
}

impl Eligible {
    /// Makes all of `rows` rows eligible.
    pub(super) fn set_all(&mut self, rows: usize) {
        if !self.are_all || self.positions.len() != rows {
            self.positions.clear();
            self.positions.extend(0..rows);
            self.are_all = true;
        }
    }

    /// The list, to be written by somebody who looks at every row.
    pub(super) fn list(&mut self) -> &mut Vec<usize> {
        self.are_all = false;
        &mut self.positions
    }

    /// Whether these are all rows of the table.
    pub(super) const fn are_all(&self) -> bool {
        self.are_all
    }

    /// The positions.
    pub(super) fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// The place of the row at `position` among the eligible ones.
    pub(super) fn row(&self, position: usize) -> Option<usize> {
        if self.are_all { Some(position) } else { self.positions.binary_search(&position).ok() }
    }

    /// Number of rows.
    pub(super) const fn len(&self) -> usize {
        self.positions.len()
    }
}
