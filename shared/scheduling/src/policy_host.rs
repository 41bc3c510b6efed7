//! Runs a partition's policy so that nothing it does costs more than one request its scores.
//!
//! A panic, an error, a cost that is not finite, a row out of range: the request is served by the fallback policy and
//! the failure is counted. After repeated failures the policy is quarantined and rebuilt from its factory, later each
//! time. After a panic its state is torn: it is dropped at once, inside the catch, and rebuilt for the next request. The
//! fallback may be anybody's too (a catalogue can be extended), so it is held on the same leash.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};
use switchtower_ids::PartitionId;
use switchtower_policy::{
    CandidateColumns, KvRouterConfig, RoutingPartitionRef, WorkerIdentity, WorkerInputs,
    WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError, WorkerSelectionPolicyFactory,
    host::{self, Pick, Rows, Scratch},
};

use crate::ChosenBy;

/// What is kept of a policy's own words, in characters.
const MESSAGE_CHARS_MAX: usize = 512;

/// A quarantine lasts at most this many times the configured first one.
const QUARANTINE_GROWTH_MAX: u64 = 100;

/// A clock that the host reads around a policy's call, in microseconds from any fixed moment. The `now_ms` that the
/// scheduler is told is of the same clock.
pub trait Clock: Send {
    /// Now.
    fn now_us(&self) -> u64;
}

/// How a policy failed: the metric label, and the policy's own words where it had any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFailure {
    /// One of a small fixed set.
    pub label: &'static str,
    /// For the log; bounded.
    pub message: String,
}

impl From<WorkerSelectionPolicyError> for PolicyFailure {
    fn from(error: WorkerSelectionPolicyError) -> Self {
        let message = error.to_string().chars().take(MESSAGE_CHARS_MAX).collect();
        Self { label: error.label(), message }
    }
}

/// What the metrics show of a partition's policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyHealth {
    /// Failures by label since the start.
    pub failures: Vec<(&'static str, u64)>,
    /// The last failure.
    pub last_failure: Option<PolicyFailure>,
    /// Whether the fallback serves in its place right now.
    pub quarantined: bool,
    /// How often it was quarantined since the start.
    pub quarantines: u64,
}

/// A choice and who made it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The row, counted among those that were to choose from, whatever the policy's filters dropped.
    pub pick: Pick,
    /// Who chose it.
    pub chosen_by: ChosenBy,
}

/// The policy of one partition, its fallback, and what is known about its failures.
pub struct PolicyHost {
    config: Arc<KvRouterConfig>,
    partition: PartitionId,
    factory: Arc<dyn WorkerSelectionPolicyFactory>,
    policy: Option<WorkerSelectionPolicy>,
    fallback_factory: Arc<dyn WorkerSelectionPolicyFactory>,
    /// `None` after a panic, until the next request.
    fallback: Option<WorkerSelectionPolicy>,
    clock: Box<dyn Clock>,
    failures_in_a_row: u32,
    quarantined_until_ms: Option<u64>,
    next_quarantine_ms: u64,
    health: PolicyHealth,
    scratch: Scratch,
    left: Left,
}

/// When a policy was called: as the scheduler was told, and as the clock says.
#[derive(Clone, Copy)]
struct Moment {
    now_ms: u64,
    started_us: u64,
}

/// What a policy's filters left.
#[derive(Default)]
struct Left {
    /// Positions among the rows that there were.
    kept: Vec<usize>,
    rows: Rows,
    /// Whether any row was dropped.
    is_narrower: bool,
}

impl Left {
    /// The rows to choose from.
    fn among<'a>(&'a self, all: &CandidateColumns<'a>) -> CandidateColumns<'a> {
        if self.is_narrower { self.rows.columns() } else { *all }
    }

    /// `pick` among all rows.
    fn among_all(&self, pick: Pick) -> Pick {
        let row = if self.is_narrower { self.kept.get(pick.row).copied() } else { None };
        Pick { row: row.unwrap_or(pick.row), ..pick }
    }
}

/// What a [`PolicyHost`] is made of.
pub struct PolicyParts {
    /// Settings, handed to the factories.
    pub config: Arc<KvRouterConfig>,
    /// The partition that the policy serves.
    pub partition: PartitionId,
    /// Builds the policy.
    pub factory: Arc<dyn WorkerSelectionPolicyFactory>,
    /// Builds the policy that serves when the other fails; should be a built-in one.
    pub fallback: Arc<dyn WorkerSelectionPolicyFactory>,
    /// Measures how long the policy takes.
    pub clock: Box<dyn Clock>,
}

impl PolicyHost {
    /// A host whose policy is built at once. A factory that panics is a failure like any other.
    #[must_use]
    pub fn new(parts: PolicyParts) -> Self {
        let mut host = Self {
            next_quarantine_ms: parts.config.quarantine_ms,
            config: parts.config,
            partition: parts.partition,
            factory: parts.factory,
            policy: None,
            fallback_factory: parts.fallback,
            fallback: None,
            clock: parts.clock,
            failures_in_a_row: 0,
            quarantined_until_ms: None,
            health: PolicyHealth::default(),
            scratch: Scratch::default(),
            left: Left::default(),
        };
        let now_ms = host.clock.now_us() / 1_000;
        host.rebuild(now_ms);
        host.rebuild_fallback();
        host
    }

    /// What the candidates have to carry: the union of what policy and fallback read.
    #[must_use]
    pub fn required_inputs(&self) -> WorkerInputs {
        let of = |policy: &Option<WorkerSelectionPolicy>| {
            policy.as_ref().map_or(WorkerInputs::NONE, WorkerSelectionPolicy::required_worker_inputs)
        };
        of(&self.policy) | of(&self.fallback)
    }

    /// What is known about the policy's failures.
    #[must_use]
    pub const fn health(&self) -> &PolicyHealth {
        &self.health
    }

    /// Ends a quarantine that is over at `now_ms`, so that [`required_inputs`](Self::required_inputs) is true for the
    /// request that comes next.
    pub fn prepare(&mut self, now_ms: u64) {
        if self.policy.is_none() && self.quarantined_until_ms.is_none_or(|until_ms| until_ms <= now_ms) {
            self.rebuild(now_ms);
        }
        if self.fallback.is_none() {
            self.rebuild_fallback();
        }
    }

    /// Chooses one of `rows`, which are not empty.
    ///
    /// # Errors
    /// Only if the policy's own filters dropped every row.
    pub fn choose(
        &mut self,
        now_ms: u64,
        context: &WorkerSelectionContext<'_>,
        rows: &CandidateColumns<'_>,
    ) -> Result<Choice, WorkerSelectionPolicyError> {
        if self.policy.is_none() {
            return self.fall_back(context, rows, "quarantined");
        }
        let called = Moment { now_ms, started_us: self.clock.now_us() };
        if !self.policy.as_ref().is_some_and(WorkerSelectionPolicy::has_filters) {
            return self.choose_among(called, context, rows, Ok(()));
        }
        let mut left = std::mem::take(&mut self.left);
        let filtered = filter(&mut self.policy, context, rows, &mut left);
        let choice = self.choose_among(called, context, &left.among(rows), filtered);
        let choice = choice.map(|choice| Choice { pick: left.among_all(choice.pick), ..choice });
        self.left = left;
        choice
    }

    /// Chooses one of the rows that the filters left, and counts among those.
    fn choose_among(
        &mut self,
        called: Moment,
        context: &WorkerSelectionContext<'_>,
        rows: &CandidateColumns<'_>,
        filtered: Result<(), Failed>,
    ) -> Result<Choice, WorkerSelectionPolicyError> {
        let outcome = filtered.and_then(|()| {
            guarded(&mut self.policy, |policy| host::choose(policy, context, rows, &mut self.scratch))
        });
        let spent_ms = self.clock.now_us().saturating_sub(called.started_us) / 1_000;
        match outcome {
            Ok(pick) => {
                self.judge_time(called.now_ms, spent_ms);
                Ok(Choice { pick, chosen_by: ChosenBy::Policy })
            }
            Err(Failed::AllFiltered(error)) => {
                self.judge_time(called.now_ms, spent_ms);
                Err(error)
            }
            Err(Failed::Policy(failure)) => {
                let label = failure.label;
                self.failed(called.now_ms, failure);
                self.fall_back(context, rows, label)
            }
        }
    }

    /// A policy that is too slow has failed, but what it chose is valid and is used.
    fn judge_time(&mut self, now_ms: u64, spent_ms: u64) {
        let budget_ms = self.config.policy_budget_ms;
        if spent_ms <= budget_ms {
            self.failures_in_a_row = 0;
            self.next_quarantine_ms = self.config.quarantine_ms;
            return;
        }
        let message = format!("the policy took {spent_ms} ms, its budget is {budget_ms} ms");
        self.failed(now_ms, PolicyFailure { label: "over_budget", message });
    }

    fn failed(&mut self, now_ms: u64, failure: PolicyFailure) {
        self.health.count(failure);
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        if self.failures_in_a_row >= self.config.quarantine_after_failures {
            self.quarantine(now_ms);
        } else if self.policy.is_none() {
            self.rebuild(now_ms);
        }
    }

    fn quarantine(&mut self, now_ms: u64) {
        discard(self.policy.take());
        self.failures_in_a_row = 0;
        self.quarantined_until_ms = Some(now_ms.saturating_add(self.next_quarantine_ms));
        let longest_ms = self.config.quarantine_ms.saturating_mul(QUARANTINE_GROWTH_MAX);
        self.next_quarantine_ms = self.next_quarantine_ms.saturating_mul(2).min(longest_ms);
        self.health.quarantined = true;
        self.health.quarantines += 1;
    }

    fn rebuild(&mut self, now_ms: u64) {
        self.quarantined_until_ms = None;
        self.health.quarantined = false;
        match build(&*self.factory, &self.config, &self.partition) {
            Some(policy) => self.policy = Some(policy),
            None => {
                let message = "the factory panicked".to_owned();
                // No instance to try again with: wait as if it had failed often enough.
                self.failures_in_a_row = self.config.quarantine_after_failures;
                self.failed(now_ms, PolicyFailure { label: "factory_panic", message });
            }
        }
    }

    fn rebuild_fallback(&mut self) {
        self.fallback = build(&*self.fallback_factory, &self.config, &self.partition);
        if self.fallback.is_none() {
            let message = "the fallback's factory panicked".to_owned();
            self.health.count(PolicyFailure { label: "fallback", message });
        }
    }

    /// A fallback that fails is counted, and the first row serves: a waiter gets its answer even so (design invariant 5).
    fn fall_back(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        rows: &CandidateColumns<'_>,
        reason: &'static str,
    ) -> Result<Choice, WorkerSelectionPolicyError> {
        let Self { fallback, scratch, .. } = self;
        let pick = match guarded(fallback, |policy| host::choose(policy, context, rows, scratch)) {
            Ok(pick) => pick,
            Err(failed) => {
                if let Failed::Policy(PolicyFailure { message, .. }) = failed {
                    self.health.count(PolicyFailure { label: "fallback", message });
                }
                let nothing = WorkerSelectionPolicyError::AllFiltered { candidates: rows.len() };
                rows.workers().first().map(first).ok_or(nothing)?
            }
        };
        Ok(Choice { pick, chosen_by: ChosenBy::Fallback(reason) })
    }
}

impl PolicyHealth {
    fn count(&mut self, failure: PolicyFailure) {
        match self.failures.iter_mut().find(|(label, _)| *label == failure.label) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.failures.push((failure.label, 1)),
        }
        self.last_failure = Some(failure);
    }
}

/// A scheduler that ends, perhaps while it unwinds, must not end the process by what a policy's drop does.
impl Drop for PolicyHost {
    fn drop(&mut self) {
        discard(self.policy.take());
        discard(self.fallback.take());
    }
}

const fn first(worker: &WorkerIdentity) -> Pick {
    Pick { row: 0, worker_id: worker.worker_id, dp_rank: worker.dp_rank, cost: 0.0 }
}

enum Failed {
    AllFiltered(WorkerSelectionPolicyError),
    Policy(PolicyFailure),
}

/// Runs the filters. Whatever happens, `left` says which rows a fallback may choose from: those that the
/// filters left, or all if the filters failed.
fn filter(
    slot: &mut Option<WorkerSelectionPolicy>,
    context: &WorkerSelectionContext<'_>,
    rows: &CandidateColumns<'_>,
    left: &mut Left,
) -> Result<(), Failed> {
    left.is_narrower = false;
    guarded(slot, |policy| host::filter(policy, context, rows, &mut left.kept))?;
    if left.kept.len() < rows.len() {
        left.is_narrower = true;
        left.rows.gather(rows, &left.kept);
    }
    Ok(())
}

/// Calls into the policy; one that panics does not stay in its slot.
fn guarded<T>(
    slot: &mut Option<WorkerSelectionPolicy>,
    call: impl FnOnce(&mut WorkerSelectionPolicy) -> Result<T, WorkerSelectionPolicyError>,
) -> Result<T, Failed> {
    let Some(policy) = slot.as_mut() else {
        return Err(failure("quarantined", "the policy is quarantined"));
    };
    match catch_unwind(AssertUnwindSafe(|| call(policy))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error @ WorkerSelectionPolicyError::AllFiltered { .. })) => Err(Failed::AllFiltered(error)),
        Ok(Err(error)) => Err(Failed::Policy(error.into())),
        Err(payload) => {
            discard(payload);
            discard(slot.take());
            Err(failure("panic", "the policy panicked; its state was dropped"))
        }
    }
}

fn failure(label: &'static str, message: &str) -> Failed {
    Failed::Policy(PolicyFailure { label, message: message.to_owned() })
}

/// Drops what a policy left behind, whose drop may panic too. The payload of that panic is leaked: its drop might
/// panic again.
fn discard<T>(remains: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(move || drop(remains))) {
        std::mem::forget(payload);
    }
}

/// `None` if the factory panicked.
fn build(
    factory: &dyn WorkerSelectionPolicyFactory,
    config: &KvRouterConfig,
    partition: &PartitionId,
) -> Option<WorkerSelectionPolicy> {
    let reference = RoutingPartitionRef::new(&partition.model, &partition.routing_group);
    let built = catch_unwind(AssertUnwindSafe(|| factory.build(config, partition.stage.label(), reference)));
    built.map_err(discard).ok()
}

#[cfg(test)]
mod tests;
