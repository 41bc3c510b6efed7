//! Workers that just failed a connection: left alone for a while, unless there is nobody else.

use crate::RowInfo;
use switchtower_ids::{Incarnation, WorkerId};

/// Inhibited lives with their ends. Few at a time, so a list.
#[derive(Debug, Default)]
pub(super) struct Inhibitions(Vec<(WorkerId, Incarnation, u64)>);

impl Inhibitions {
    /// Inhibits a life until `until_ms`; the later of two ends holds.
    pub(super) fn add(&mut self, worker: WorkerId, incarnation: Incarnation, until_ms: u64) {
        match self.0.iter_mut().find(|(id, life, _)| (*id, *life) == (worker, incarnation)) {
            Some((.., end_ms)) => *end_ms = until_ms.max(*end_ms),
            None => self.0.push((worker, incarnation, until_ms)),
        }
    }

    /// Ends what is over at `now_ms`; says whether anything was.
    pub(super) fn expire(&mut self, now_ms: u64) -> bool {
        let before = self.0.len();
        self.0.retain(|(.., until_ms)| *until_ms > now_ms);
        self.0.len() < before
    }

    /// Whether nobody is inhibited.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the next inhibition ends.
    pub(super) fn next_end_ms(&self) -> Option<u64> {
        self.0.iter().map(|(.., until_ms)| *until_ms).min()
    }

    /// Takes inhibited rows out of `eligible`, unless none would be left.
    pub(super) fn narrow(&self, now_ms: u64, rows: &[RowInfo], eligible: &mut Vec<usize>) {
        if self.0.is_empty() {
            return;
        }
        let inhibited = |index: &usize| {
            let row = &rows[*index];
            self.0.iter().any(|(worker, life, until_ms)| {
                *until_ms > now_ms && (*worker, *life) == (row.row.worker, row.incarnation)
            })
        };
        if !eligible.iter().all(inhibited) {
            eligible.retain(|index| !inhibited(index));
        }
    }
}
