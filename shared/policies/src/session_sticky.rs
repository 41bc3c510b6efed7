//! `session-sticky`: a session stays on its row. For fleets whose cache the router cannot see, or whose sessions
//! carry other state. Built by the catalogue.

mod bindings;

use crate::{cost_picker, generator::name_hash, least_loaded::BookedBlocksScorer};
use bindings::Bindings;
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerInputView, WorkerPicker, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError, WorkerSelectionPolicyFactory,
};

/// Binds a session to the row that its first request is given: the one that costs least, as
/// [`least_loaded`](crate::least_loaded()) costs. Later requests of the session go there whatever it costs. When the
/// row is not among the candidates (gone, overloaded, draining, not allowed) the session is bound anew, as if it
/// were new.
///
/// **Without a session** a request is given the row that costs least, and nothing is bound.
///
/// Sessions are remembered by a 64-bit hash of their names, so that names of any length take the same memory; two that
/// collide share a row. The session that was not heard of for longest is forgotten first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSticky {
    /// Most sessions that are remembered; 65,536 by default, about 100 bytes each.
    pub sessions_max: usize,
}

impl Default for SessionSticky {
    fn default() -> Self {
        Self { sessions_max: 65_536 }
    }
}

impl WorkerSelectionPolicyFactory for SessionSticky {
    fn build(
        &self,
        config: &KvRouterConfig,
        worker_type: &'static str,
        partition: RoutingPartitionRef<'_>,
    ) -> WorkerSelectionPolicy {
        let picker = StickyPicker {
            bindings: Bindings::new(self.sessions_max),
            of_new_sessions: cost_picker(config, worker_type, partition),
        };
        WorkerSelectionPolicy::new(
            config.clone(),
            worker_type,
            vec![Box::new(BookedBlocksScorer)],
            Box::new(picker),
        )
    }
}

struct StickyPicker {
    bindings: Bindings,
    of_new_sessions: Box<dyn WorkerPicker>,
}

impl WorkerPicker for StickyPicker {
    fn pick(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        let Some(session) = context.session().map(|name| name_hash([name])) else {
            return self.of_new_sessions.pick(context, input);
        };
        let rows = input.workers();
        let bound = self.bindings.heard_of(session);
        if let Some(row) = bound.and_then(|bound| rows.iter().position(|row| *row == bound)) {
            return Ok(row);
        }
        let row = self.of_new_sessions.pick(context, input)?;
        if let Some(worker) = rows.get(row) {
            self.bindings.bind(session, *worker);
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::decide;
    use switchtower_policy::{
        WorkerCandidate,
        host::{ContextBuilder, candidate, load},
    };

    fn policy(sessions_max: usize) -> WorkerSelectionPolicy {
        let partition = RoutingPartitionRef::new("model", "default");
        SessionSticky { sessions_max }.build(&KvRouterConfig::default(), "aggregated", partition)
    }

    fn row(worker: u64, blocks: f64) -> WorkerCandidate {
        candidate(worker, 0).with_load(load(0.0, 0, blocks, 0))
    }

    /// The worker that a request of `session` is given among rows of (worker, booked blocks).
    fn given(policy: &mut WorkerSelectionPolicy, session: Option<&str>, rows: &[(u64, f64)]) -> u64 {
        let rows: Vec<_> = rows.iter().map(|(worker, blocks)| row(*worker, *blocks)).collect();
        let context = ContextBuilder::new(64, 16).session(session).build();
        decide(policy, &context, &rows).unwrap().worker_id
    }

    #[test]
    fn a_session_stays_on_its_row_whatever_it_costs() {
        let mut policy = policy(10);
        assert_eq!(given(&mut policy, Some("one"), &[(1, 0.0), (2, 5.0)]), 1);
        assert_eq!(given(&mut policy, Some("one"), &[(1, 900.0), (2, 5.0)]), 1);
        assert_eq!(given(&mut policy, Some("two"), &[(1, 900.0), (2, 5.0)]), 2);
        assert_eq!(given(&mut policy, Some("two"), &[(1, 0.0), (2, 5.0)]), 2);
    }

    #[test]
    fn without_a_session_the_least_loaded_row_is_given_and_nothing_is_bound() {
        let mut policy = policy(10);
        assert_eq!(given(&mut policy, None, &[(1, 0.0), (2, 5.0)]), 1);
        assert_eq!(given(&mut policy, None, &[(1, 9.0), (2, 5.0)]), 2);
    }

    #[test]
    fn a_session_whose_row_is_gone_is_bound_anew_and_stays_there() {
        let mut policy = policy(10);
        assert_eq!(given(&mut policy, Some("one"), &[(1, 0.0), (2, 5.0), (3, 6.0)]), 1);
        assert_eq!(given(&mut policy, Some("one"), &[(2, 5.0), (3, 6.0)]), 2);
        assert_eq!(given(&mut policy, Some("one"), &[(1, 0.0), (2, 5.0), (3, 6.0)]), 2);
    }

    #[test]
    fn only_so_many_sessions_are_remembered() {
        let mut policy = policy(2);
        for session in ["one", "two"] {
            assert_eq!(given(&mut policy, Some(session), &[(1, 0.0), (2, 5.0)]), 1);
        }
        assert_eq!(given(&mut policy, Some("one"), &[(1, 9.0), (2, 5.0)]), 1, "heard of again");
        assert_eq!(given(&mut policy, Some("three"), &[(1, 0.0), (2, 5.0)]), 1, "takes the place of `two`");
        assert_eq!(given(&mut policy, Some("one"), &[(1, 9.0), (2, 5.0)]), 1);
        assert_eq!(given(&mut policy, Some("two"), &[(1, 9.0), (2, 5.0)]), 2);
    }
}
