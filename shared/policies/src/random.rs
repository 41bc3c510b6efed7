//! `random`: every row is as likely as every other. The yardstick for the rest. Built by the catalogue.

use crate::{Generator, picker::no_candidate};
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerInputView, WorkerPicker, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

/// A row at random, by the seeded generator.
#[must_use]
pub fn random(
    config: &KvRouterConfig,
    worker_type: &'static str,
    partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    let picker = RandomPicker { generator: Generator::for_partition(config, worker_type, partition) };
    WorkerSelectionPolicy::new(config.clone(), worker_type, Vec::new(), Box::new(picker))
}

struct RandomPicker {
    generator: Generator,
}

impl WorkerPicker for RandomPicker {
    fn pick(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        match input.costs().len() {
            0 => Err(no_candidate()),
            rows => Ok(self.generator.below(rows)),
        }
    }
}
