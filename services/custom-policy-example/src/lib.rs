//! Write a policy in an afternoon: `session-affinity`, and a command that has it. The library is the policy and its
//! tests, the binary links it. Copy the crate, change the scorer and the picker, keep the rest. Like every policy it
//! must not block, wait, panic or grow without bound; the scheduler calls it, for one request after the other.
//!
//! # What it does
//!
//! An agent sends the same growing conversation over and over, and its worker holds nearly all of it. So a session
//! stays on its row, **unless** that row has become much busier than the least busy one: then the session moves, for
//! good. Everybody else, and a session that is new or has to move, goes where its uncached work delays people least.
//!
//! # 1. The cost: a scorer
//!
//! The module `work` implements [`WorkerScorer`](switchtower_policy::WorkerScorer). It says which groups of signals it
//! reads, so that the host computes no others, and gives each row a finite cost, lower is better. This one weighs
//! uncached tokens by how busy the rows are on average. That needs all rows at once, so it implements `score_batch`, which is
//! handed the signals as columns;
//! where a row's cost is its own affair, `score` alone is enough. Costs of several scorers are summed.
//!
//! # 2. The choice: a picker
//!
//! The module `affinity` implements [`WorkerPicker`](switchtower_policy::WorkerPicker). It answers with a row's index
//! and keeps the state: which session is where. Nobody else calls it, so there is no lock. State must have a bound
//! (`sessions` forgets the session that was quiet for longest). It may be lost at any time: another router takes the
//! partition over, or the policy failed and is built anew. The cost then finds the warm row again by its cache.
//!
//! # 3. The factory
//!
//! [`session_affinity_policy`] puts both together, once per partition and stage. Randomness comes from the seed in
//! the configuration, here through [`cost_picker`], so that decisions repeat.
//!
//! # 4. The tests, without a fleet
//!
//! [`host`](switchtower_policy::host) runs a policy exactly as the scheduler does:
//!
//! ```
//! use switchtower_custom_policy_example::session_affinity_policy;
//! use switchtower_policy::{KvRouterConfig, RoutingPartitionRef, host};
//!
//! let partition = RoutingPartitionRef::new("model", "default");
//! let mut policy = session_affinity_policy(&KvRouterConfig::default(), "aggregated", partition);
//! let turn = host::ContextBuilder::new(4_096, 16).session(Some("agent-7")).build();
//! let mut scratch = host::Scratch::default();
//! let mut decide = |rows: [_; 2]| host::evaluate(&mut policy, &turn, &mut Vec::from(rows), &mut scratch);
//!
//! // Worker 2 has half of the prompt. It keeps the session when worker 1 has the better price, too.
//! let warm = host::cache(128.0, 0.0, 0.0);
//! assert_eq!(decide([host::candidate(1, 0), host::candidate(2, 0).with_cache(warm)])?.worker_id, 2);
//! assert_eq!(decide([host::candidate(1, 0).with_cache(warm), host::candidate(2, 0)])?.worker_id, 2);
//! # Ok::<(), switchtower_policy::WorkerSelectionPolicyError>(())
//! ```
//!
//! # 5. The command
//!
//! `main.rs` is one call. The binary is the whole `switchtower` command; `policy = "session-affinity"` in its
//! configuration selects the policy, and `replay` compares it with the others on a trace before it sees traffic.
//!
//! # Hard rules: a filter
//!
//! A wish belongs into the cost. A rule that nothing may break is a [`WorkerFilter`](switchtower_policy::WorkerFilter):
//! rows that it drops are gone, also for the fallback policy, and a request that loses all rows fails. This policy has
//! wishes only. If urgent requests must stay off some workers, say those that try out a new engine:
//!
//! ```
//! # use switchtower_custom_policy_example::session_affinity_policy;
//! # use switchtower_policy::{KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerFilter};
//! # use switchtower_policy::{WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError, host};
//! struct NoTrialForUrgent {
//!     trial_worker_id: u64,
//! }
//!
//! impl WorkerFilter for NoTrialForUrgent {
//!     fn keep(
//!         &mut self,
//!         context: &WorkerSelectionContext<'_>,
//!         candidate: &WorkerCandidate,
//!     ) -> Result<bool, WorkerSelectionPolicyError> {
//!         Ok(context.priority() <= 0.0 || candidate.worker_id() != self.trial_worker_id)
//!     }
//! }
//!
//! fn policy(
//!     config: &KvRouterConfig,
//!     worker_type: &'static str,
//!     partition: RoutingPartitionRef<'_>,
//! ) -> WorkerSelectionPolicy {
//!     session_affinity_policy(config, worker_type, partition)
//!         .with_filters(vec![Box::new(NoTrialForUrgent { trial_worker_id: 9 })])
//! }
//! # let mut policy = policy(&KvRouterConfig::default(), "decode", RoutingPartitionRef::new("model", "default"));
//! # let mut rows = vec![host::candidate(9, 0)];
//! # let urgent = host::ContextBuilder::new(64, 16).priority(1.0).build();
//! # let refused = host::evaluate(&mut policy, &urgent, &mut rows, &mut host::Scratch::default());
//! # assert_eq!(refused, Err(WorkerSelectionPolicyError::AllFiltered { candidates: 1 }));
//! ```

mod affinity;
mod sessions;
mod work;

use affinity::AffinityPicker;
use sessions::Sessions;
use switchtower_policies::cost_picker;
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerSelectionPolicy, WorkerSelectionPolicyFactory,
};
use work::DelayScorer;

#[cfg(test)]
mod tests;

/// The settings of the policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionAffinity {
    /// A session may stay while its row has at most this many requests, plus [`slack_factor`](Self::slack_factor)
    /// times those of the row that has fewest. Keeps small numbers from moving sessions about.
    pub slack_requests: u64,
    /// See [`slack_requests`](Self::slack_requests); at least 1. Makes the guard mean the same at every load.
    pub slack_factor: f64,
    /// Mean prefill backlog of the rows, in tokens, at which uncached work weighs one more than on an idle fleet;
    /// above 0. About what an engine prefills in a second.
    pub busy_backlog_tokens: f64,
    /// Most sessions that are remembered per partition and stage, some 100 bytes each.
    pub sessions_max: usize,
}

impl Default for SessionAffinity {
    fn default() -> Self {
        Self { slack_requests: 4, slack_factor: 1.25, busy_backlog_tokens: 10_000.0, sessions_max: 65_536 }
    }
}

impl SessionAffinity {
    /// A factory of policies with these settings, for `Command::policy` or `Catalogue::with`.
    #[must_use]
    pub fn factory(self) -> impl WorkerSelectionPolicyFactory {
        move |config: &KvRouterConfig, worker_type: &'static str, partition: RoutingPartitionRef<'_>| {
            self.build(config, worker_type, partition)
        }
    }

    fn build(
        self,
        config: &KvRouterConfig,
        worker_type: &'static str,
        partition: RoutingPartitionRef<'_>,
    ) -> WorkerSelectionPolicy {
        let picker = AffinityPicker {
            slack_requests: self.slack_requests,
            slack_factor: self.slack_factor,
            sessions: Sessions::new(self.sessions_max),
            cheapest: cost_picker(config, worker_type, partition),
        };
        let scorer = DelayScorer { busy_backlog_tokens: self.busy_backlog_tokens };
        WorkerSelectionPolicy::new(config.clone(), worker_type, vec![Box::new(scorer)], Box::new(picker))
    }
}

/// The factory with the default settings.
#[must_use]
pub fn session_affinity_policy(
    config: &KvRouterConfig,
    worker_type: &'static str,
    partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    SessionAffinity::default().build(config, worker_type, partition)
}
