//! `direct`: the worker that the request is pinned to. For fleets where somebody else chooses, and this router books and
//! forwards. Built by the catalogue.

use crate::{cost_picker, least_loaded::BookedBlocksScorer};
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerInputView, WorkerPicker, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

/// The pinned worker; of its eligible ranks the one that costs least, as [`least_loaded`](crate::least_loaded()) costs.
///
/// **Without a pin** it fails: the failure is counted and told (`policy failed: the request pins no worker …`), and the
/// configured fallback policy serves the request, as it does for every policy that fails. Repeated failures put the
/// policy in quarantine, which changes nothing for requests with a pin: the host offers the rows of the pinned
/// worker alone, and the fallback picks among them.
#[must_use]
pub fn direct(
    config: &KvRouterConfig,
    worker_type: &'static str,
    partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    let picker = PinPicker { among_ranks: cost_picker(config, worker_type, partition) };
    WorkerSelectionPolicy::new(
        config.clone(),
        worker_type,
        vec![Box::new(BookedBlocksScorer)],
        Box::new(picker),
    )
}

struct PinPicker {
    among_ranks: Box<dyn WorkerPicker>,
}

impl WorkerPicker for PinPicker {
    fn pick(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        let pinned = context.pinned_worker().ok_or_else(|| {
            WorkerSelectionPolicyError::failed(
                "the request pins no worker: pin one, or choose another policy than `direct`",
            )
        })?;
        let row = self.among_ranks.pick(context, input)?;
        let picked = input.workers().get(row).map(|worker| worker.worker_id);
        if picked == Some(pinned) {
            return Ok(row);
        }
        // The host offers a pinned request no other worker's rows.
        Err(WorkerSelectionPolicyError::failed(format!("the pinned worker {pinned} is not the one offered")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::decide;
    use switchtower_policy::host::{ContextBuilder, candidate, load};

    fn policy() -> WorkerSelectionPolicy {
        direct(&KvRouterConfig::default(), "aggregated", RoutingPartitionRef::new("model", "default"))
    }

    #[test]
    fn the_least_loaded_rank_of_the_pinned_worker_is_picked() {
        let rows = [
            candidate(7, 0).with_load(load(4.0, 0, 9.0, 1)),
            candidate(7, 1).with_load(load(4.0, 0, 5.0, 9)),
            candidate(7, 2).with_load(load(9.0, 80, 5.0, 1)),
        ];
        let context = ContextBuilder::new(64, 16).pinned_worker(Some(7)).build();
        let pick = decide(&mut policy(), &context, &rows).unwrap();
        assert_eq!((pick.worker_id, pick.dp_rank, pick.cost), (7, 1, 9.0));
    }

    #[test]
    fn without_a_pin_it_fails_and_says_what_to_do() {
        let rows = [candidate(7, 0)];
        let error = decide(&mut policy(), &ContextBuilder::new(64, 16).build(), &rows).unwrap_err();
        assert!(error.to_string().contains("pin one, or choose another policy"), "{error}");
        let context = ContextBuilder::new(64, 16).pinned_worker(Some(8)).build();
        assert!(decide(&mut policy(), &context, &rows).unwrap_err().to_string().contains("worker 8"));
    }
}
