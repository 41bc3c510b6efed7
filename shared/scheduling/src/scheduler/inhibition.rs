//! Workers that just failed a connection: left alone for a while, unless there is nobody else.

use crate::RowInfo;
use switchtower_ids::{Incarnation, WorkerId};

/// Inhibited lives with their ends. Few at a time, so a list.
#[derive(Debug, Default)]
pub(super) struct Inhibitions(Vec<(WorkerId, Incarnation, u64)>);

impl Inhibitions {
    /// Inhibits a life until `until_ms`; the later of two ends holds.
    pub(super) fn add(&mut self, worker: WorkerId, incarnation: Incarnation, until_ms: u64) {
        match self
            .0
            .iter_mut()
            .find(|(id, life, _)| (*id, *life) == (worker, incarnation))
        {
            Some((.., end_ms)) => *end_ms = until_ms.max(*end_ms),
            None => self.0.push((worker, incarnation, until_ms)),
        }
    }

    /// Takes inhibited rows out of `eligible`, unless none would be left.
    pub(super) fn narrow(&mut self, now_ms: u64, rows: &[RowInfo], eligible: &mut Vec<usize>) {
        self.0.retain(|(.., until_ms)| *until_ms > now_ms);
        if self.0.is_empty() {
            return;
        }
        let inhibited = |index: &usize| {
            let row = &rows[*index];
            self.0
                .iter()
                .any(|(worker, life, _)| (*worker, *life) == (row.row.worker, row.incarnation))
        };
        if !eligible.iter().all(inhibited) {
            eligible.retain(|index| !inhibited(index));
        }
    }
}
