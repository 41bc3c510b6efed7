//! Which row each session is on, for the sessions used last. Holds hashes of session names, never the names: an entry
//! has one size, whatever callers send. Only the picker calls this.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};
use switchtower_policy::WorkerIdentity;

/// At most `limit` sessions; one more, and the one that was quiet for longest is forgotten.
pub(crate) struct Sessions {
    limit: usize,
    /// Counts uses: "when" without a clock.
    uses: u64,
    homes: BTreeMap<u64, Home>,
    /// The session of each last use, so the oldest is at the front.
    by_last_use: BTreeMap<u64, u64>,
}

struct Home {
    worker: WorkerIdentity,
    last_use: u64,
}

impl Sessions {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit, uses: 0, homes: BTreeMap::new(), by_last_use: BTreeMap::new() }
    }

    /// Where `session` was last.
    pub(crate) fn home(&self, session: &str) -> Option<WorkerIdentity> {
        self.homes.get(&key(session)).map(|home| home.worker)
    }

    /// `session` is on `worker` now.
    pub(crate) fn settle(&mut self, session: &str, worker: WorkerIdentity) {
        let key = key(session);
        self.uses += 1;
        let home = Home { worker, last_use: self.uses };
        if let Some(former) = self.homes.insert(key, home) {
            self.by_last_use.remove(&former.last_use);
        }
        self.by_last_use.insert(self.uses, key);
        while self.homes.len() > self.limit {
            let Some((_, quietest)) = self.by_last_use.pop_first() else {
                break;
            };
            self.homes.remove(&quietest);
        }
    }
}

/// Two sessions of one hash would share a row, which harms neither.
fn key(session: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    session.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn worker(worker_id: u64) -> WorkerIdentity {
        WorkerIdentity { worker_id, dp_rank: 0 }
    }

    #[test]
    fn the_session_that_was_quiet_for_longest_is_forgotten() {
        let mut sessions = Sessions::new(2);
        sessions.settle("a", worker(1));
        sessions.settle("b", worker(2));
        sessions.settle("a", worker(3));
        sessions.settle("c", worker(4));
        assert_eq!(["a", "b", "c"].map(|name| sessions.home(name)), [Some(worker(3)), None, Some(worker(4))]);
    }

    #[test]
    fn memory_stays_bounded_whatever_comes() {
        let mut sessions = Sessions::new(8);
        for n in 0..1_000_u64 {
            sessions.settle(&format!("session {}", n % 100), worker(n));
            sessions.settle("always", worker(n));
            assert!(sessions.homes.len() <= 8 && sessions.homes.len() == sessions.by_last_use.len());
        }
        assert_eq!(sessions.home("always"), Some(worker(999)));

        let mut none = Sessions::new(0);
        none.settle("a", worker(1));
        assert!(none.home("a").is_none() && none.homes.is_empty() && none.by_last_use.is_empty());
    }
}
