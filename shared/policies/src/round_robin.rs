//! `round-robin`: the rows take turns. Built by the catalogue.

use crate::{Generator, picker::no_candidate};
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerIdentity, WorkerInputView, WorkerPicker,
    WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

/// The rows in turn, by (worker, rank), from one drawn by the seeded generator: routers that start together do not
/// all begin with the same worker. Whose turn it is follows from who was last, so rows that come and go cost nobody
/// a turn.
#[must_use]
pub fn round_robin(
    config: &KvRouterConfig,
    worker_type: &'static str,
    partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    let picker =
        TurnPicker { last: None, generator: Generator::for_partition(config, worker_type, partition) };
    WorkerSelectionPolicy::new(config.clone(), worker_type, Vec::new(), Box::new(picker))
}

struct TurnPicker {
    last: Option<WorkerIdentity>,
    generator: Generator,
}

impl TurnPicker {
    /// The row that follows the last one, or the first where none does.
    fn next(&mut self, input: WorkerInputView<'_>) -> Option<usize> {
        let rows = input.workers();
        let Some(last) = self.last else {
            return (!rows.is_empty()).then(|| self.generator.below(rows.len()));
        };
        let turns = rows.iter().enumerate();
        turns.min_by_key(|(_, worker)| (**worker <= last, **worker)).map(|(row, _)| row)
    }
}

impl WorkerPicker for TurnPicker {
    fn pick(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        let row = self.next(input).ok_or_else(no_candidate)?;
        self.last = input.workers().get(row).copied();
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{decide, request};
    use switchtower_policy::host::candidate;

    /// Picks among `rows`, given as (worker, rank).
    fn turn(policy: &mut WorkerSelectionPolicy, rows: &[(u64, u32)]) -> (u64, u32) {
        let rows: Vec<_> = rows.iter().map(|(worker, rank)| candidate(*worker, *rank)).collect();
        let pick = decide(policy, &request(64), &rows).unwrap();
        (pick.worker_id, pick.dp_rank)
    }

    #[test]
    fn rows_take_turns_whatever_their_order_and_whoever_leaves() {
        let config = KvRouterConfig::default();
        let mut policy = round_robin(&config, "decode", RoutingPartitionRef::new("model", "default"));
        assert_eq!(turn(&mut policy, &[(2, 0)]), (2, 0));
        let rows = [(3, 0), (1, 0), (2, 1), (2, 0)];
        assert_eq!(turn(&mut policy, &rows), (2, 1));
        assert_eq!(turn(&mut policy, &rows), (3, 0));
        assert_eq!(turn(&mut policy, &rows), (1, 0));
        assert_eq!(turn(&mut policy, &[(3, 0), (1, 0)]), (3, 0));
        assert_eq!(turn(&mut policy, &[(1, 0)]), (1, 0));
        assert_eq!(turn(&mut policy, &[(1, 0)]), (1, 0));
    }
}
