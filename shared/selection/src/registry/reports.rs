//! Puts workers' load reports in order: the bus may reorder them, and an old one must not take the place of a newer (B57).

use std::collections::HashMap;
use switchtower_ids::{Incarnation, WorkerId};

/// A report that seems older than this against the last one is from a worker whose clock was set back.
const CLOCK_STEP_MS: u64 = 60_000;

/// When each worker's last report was measured, in which life. As large as the fleet.
#[derive(Debug, Default)]
pub(super) struct ReportOrder(HashMap<WorkerId, (Incarnation, u64)>);

impl ReportOrder {
    /// Whether no later report of this life has come before. It is remembered then.
    pub(super) fn is_newest(
        &mut self,
        worker: WorkerId,
        incarnation: Incarnation,
        measured_at_ms: u64,
    ) -> bool {
        let is_late = self.0.get(&worker).is_some_and(|(life, last_ms)| {
            let late_ms = last_ms.saturating_sub(measured_at_ms);
            *life == incarnation && (1..=CLOCK_STEP_MS).contains(&late_ms)
        });
        if !is_late {
            self.0.insert(worker, (incarnation, measured_at_ms));
        }
        !is_late
    }

    /// Forgets the workers that are gone.
    pub(super) fn retain(&mut self, keep: impl Fn(WorkerId) -> bool) {
        self.0.retain(|worker, _| keep(*worker));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b57_a_late_report_is_not_taken_for_news() {
        let mut order = ReportOrder::default();
        let mut takes = |incarnation, measured_at_ms| {
            order.is_newest(WorkerId(1), Incarnation(incarnation), measured_at_ms)
        };
        assert!(takes(1, 100_000) && !takes(1, 99_999) && takes(1, 100_000) && takes(1, 100_001));
        assert!(takes(2, 5), "another life has another clock");
        assert!(takes(2, 200_000) && takes(2, 100), "a clock that was set back goes on from there");
        order.retain(|_| false);
        assert!(order.0.is_empty());
    }
}
