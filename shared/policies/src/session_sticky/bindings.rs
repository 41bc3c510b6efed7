//! Which row each session is bound to, for a bounded number of sessions. Ordered maps: the same calls leave the same
//! state. Used by `session-sticky` alone; knows nothing of costs.

use std::collections::BTreeMap;
use switchtower_policy::WorkerIdentity;

struct Binding {
    row: WorkerIdentity,
    /// When the session was last heard of, in calls.
    heard: u64,
}

/// Bindings, least recently heard of first out.
pub(super) struct Bindings {
    sessions_max: usize,
    calls: u64,
    by_session: BTreeMap<u64, Binding>,
    /// The sessions in the order in which they were last heard of.
    by_age: BTreeMap<u64, u64>,
}

impl Bindings {
    pub(super) const fn new(sessions_max: usize) -> Self {
        Self { sessions_max, calls: 0, by_session: BTreeMap::new(), by_age: BTreeMap::new() }
    }

    /// The row of a session, which counts as heard of now.
    pub(super) fn heard_of(&mut self, session: u64) -> Option<WorkerIdentity> {
        let binding = self.by_session.get_mut(&session)?;
        self.calls += 1;
        self.by_age.remove(&binding.heard);
        self.by_age.insert(self.calls, session);
        binding.heard = self.calls;
        Some(binding.row)
    }

    /// Binds a session to a row, in place of any other.
    pub(super) fn bind(&mut self, session: u64, row: WorkerIdentity) {
        self.calls += 1;
        if let Some(before) = self.by_session.insert(session, Binding { row, heard: self.calls }) {
            self.by_age.remove(&before.heard);
        }
        self.by_age.insert(self.calls, session);
        while self.by_session.len() > self.sessions_max
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_session.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(worker_id: u64) -> WorkerIdentity {
        WorkerIdentity { worker_id, dp_rank: 0 }
    }

    proptest! {
        /// Against a list, most recently heard of last.
        #[test]
        fn bindings_equal_a_list_in_order_of_use(
            limit in 0..5_usize,
            calls in prop::collection::vec((0..8_u64, prop::option::of(0..4_u64)), 0..60),
        ) {
            let (mut bindings, mut list) = (Bindings::new(limit), Vec::<(u64, WorkerIdentity)>::new());
            for (session, bound_to) in calls {
                let known = list.iter().position(|entry| entry.0 == session).map(|at| list.remove(at));
                let left = match bound_to {
                    Some(worker) => {
                        bindings.bind(session, row(worker));
                        Some((session, row(worker)))
                    }
                    None => {
                        prop_assert_eq!(bindings.heard_of(session), known.map(|entry| entry.1));
                        known
                    }
                };
                list.extend(left);
                list.drain(..list.len().saturating_sub(limit));
                prop_assert_eq!(bindings.by_session.len(), list.len());
                prop_assert_eq!(bindings.by_age.len(), list.len());
            }
        }
    }
}
