//! What happened since waiters were last offered their turn: only that can let one of them go.
//!
//! After a round of offers every waiter that stays is blocked: all rows that may take it are busy. So the next round need
//! only look at rows of which there is news, and a message costs the same however many rows and waiters there are.

use switchtower_ids::Row;

/// Beyond this many rows, looking at all is as good.
const ROWS_MAX: usize = 64;

/// News for those who wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum News {
    #[default]
    None,
    /// These rows may have room.
    Rows(Vec<Row>),
    /// Rows came, went or changed, or other rules apply: any waiter may go, or have nowhere to go any more.
    Anything,
}

impl News {
    /// `row` may have room.
    pub(super) fn row(&mut self, row: Row) {
        match self {
            Self::None => *self = Self::Rows(vec![row]),
            Self::Rows(rows) if rows.contains(&row) => {}
            Self::Rows(rows) if rows.len() < ROWS_MAX => rows.push(row),
            Self::Rows(_) => *self = Self::Anything,
            Self::Anything => {}
        }
    }

    /// Everybody has to be looked at.
    pub(super) fn anything(&mut self) {
        *self = Self::Anything;
    }

    /// The news, which is none from now on.
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}
