//! `power-of-two`: two rows at random, the less loaded of the two. Nearly as even as the least loaded row, and routers
//! that do not know of each other's bookings do not all run to the same row. Built by the catalogue.

use crate::{Generator, least_loaded::BookedBlocksScorer, picker::no_candidate};
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerInputView, WorkerPicker, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

/// Draws two different rows with the seeded generator and picks the one that costs less; costs are those of
/// [`least_loaded`](crate::least_loaded()). Of two that tie either is as likely. One row alone is picked. There is
/// no temperature: the draw is the randomness.
#[must_use]
pub fn power_of_two(
    config: &KvRouterConfig,
    worker_type: &'static str,
    partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    let picker = TwoChoicesPicker { generator: Generator::for_partition(config, worker_type, partition) };
    WorkerSelectionPolicy::new(
        config.clone(),
        worker_type,
        vec![Box::new(BookedBlocksScorer)],
        Box::new(picker),
    )
}

struct TwoChoicesPicker {
    generator: Generator,
}

impl TwoChoicesPicker {
    /// Two different rows of `rows`, in random order, or twice the only one.
    const fn draw(&mut self, rows: usize) -> (usize, usize) {
        let first = self.generator.below(rows);
        let among_others = self.generator.below(rows.saturating_sub(1));
        // Skipping the first row makes the second uniform over the others.
        let second = if among_others >= first { among_others + 1 } else { among_others };
        (first, if second < rows { second } else { first })
    }
}

impl WorkerPicker for TwoChoicesPicker {
    fn pick(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        let costs = input.costs();
        let (first, second) = self.draw(costs.len());
        match (costs.get(first), costs.get(second)) {
            (Some(one), Some(other)) => Ok(if other < one { second } else { first }),
            _ => Err(no_candidate()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{FixedCosts, picks_of};

    /// How often each of `costs` is picked in `draws` draws.
    fn share(costs: &[f64], draws: usize) -> Vec<usize> {
        let picker = TwoChoicesPicker { generator: Generator::new(11) };
        let scorer = Box::new(FixedCosts(costs.to_vec()));
        let policy = WorkerSelectionPolicy::new(
            KvRouterConfig::default(),
            "aggregated",
            vec![scorer],
            Box::new(picker),
        );
        let mut counts = vec![0; costs.len()];
        picks_of(policy, costs.len(), draws).for_each(|row| counts[row] += 1);
        counts
    }

    #[test]
    fn the_cheaper_of_two_different_rows_wins() {
        // Of the six pairs among four rows the cheapest row is in three, the next wins two, the next one, the last none.
        let counts = share(&[3.0, 1.0, 4.0, 2.0], 6_000);
        for (count, expected) in counts.iter().zip([1_000_usize, 3_000, 0, 2_000]) {
            assert!(count.abs_diff(expected) < 150, "{counts:?}");
        }
        assert_eq!(counts[2], 0, "the dearest row is never alone in a pair");
    }

    #[test]
    fn ties_are_even_and_few_rows_are_enough() {
        assert!(share(&[7.0; 4], 4_000).iter().all(|count| (900..1_100).contains(count)));
        assert_eq!(share(&[5.0], 10), [10]);
        assert_eq!(share(&[5.0, 4.0], 10), [0, 10]);
    }
}
