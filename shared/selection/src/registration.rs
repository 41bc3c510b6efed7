//! Keeps a worker's record in discovery: under its lease, at its own key, and never in the place of another worker.
//!
//! A reconciler: it looks at what stands at the key on every change and on a timer, and does what follows. It must not end
//! a process: what a worker does that is not registered, or that a later life has replaced, is the worker's to decide. Called
//! by workers; [`announce`] is the routers' simpler part.

mod judge;
mod registrar;
mod replica;

pub use replica::{Announcement, announce};

use crate::records::WorkerRecord;
use registrar::Registrar;
use std::{fmt, sync::Arc, time::Duration};
use switchtower_cluster::DistributedRuntime;
use switchtower_runtime::TaskGroup;
use tokio::sync::watch;

/// How long the end waits for the store to forget the record.
const END_DEADLINE: Duration = Duration::from_secs(5);

/// Where a registration stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationState {
    /// Not registered, or not known whether still, for this reason; tried again.
    Pending {
        /// What the store said last; empty before the first attempt.
        reason: String,
    },
    /// The record stands.
    Registered,
    /// Another worker has the id, for as long as its lease lives; tried again when that ends (`book rule 10`).
    Refused {
        /// Who has it.
        reason: String,
    },
    /// A later life has registered from the same endpoint: this one is over.
    Replaced,
    /// The record was taken back.
    Ended,
}

impl fmt::Display for RegistrationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending { reason } if reason.is_empty() => f.write_str("not registered yet"),
            Self::Pending { reason } => write!(f, "not registered: {reason}"),
            Self::Registered => f.write_str("registered"),
            Self::Refused { reason } => write!(f, "refused: {reason}"),
            Self::Replaced => f.write_str("replaced by a later life at the same endpoint"),
            Self::Ended => f.write_str("ended"),
        }
    }
}

/// One life's registration. Dropping it is a crash for the cluster: the record goes with the lease.
#[derive(Debug)]
pub struct Registration {
    /// `None` asks for the end.
    wanted: watch::Sender<Option<WorkerRecord>>,
    states: watch::Receiver<RegistrationState>,
}

impl Registration {
    /// Registers `record` under a lease of `ttl` (at least a second), and keeps it registered; a task in `tasks` does.
    #[must_use]
    pub fn start(
        runtime: &DistributedRuntime,
        record: WorkerRecord,
        ttl: Duration,
        tasks: &TaskGroup,
    ) -> Self {
        let name = format!("registration of worker {}", record.worker_id);
        let (wanted, wanted_seen) = watch::channel(Some(record));
        let (state, states) = watch::channel(RegistrationState::Pending { reason: String::new() });
        let registrar = Registrar::new(Arc::clone(runtime.discovery()), ttl, wanted_seen, state);
        tasks.spawn_named(name, registrar.run());
        Self { wanted, states }
    }

    /// Makes the record say this from now on. It keeps its worker id and incarnation.
    pub fn update(&self, record: WorkerRecord) {
        self.wanted.send_replace(Some(record));
    }

    /// Where it stands now.
    #[must_use]
    pub fn state(&self) -> RegistrationState {
        self.states.borrow().clone()
    }

    /// Waits until the first attempt has come to something, good or bad, and returns that.
    pub async fn settled(&self) -> RegistrationState {
        let untried = |state: &RegistrationState| matches!(state, RegistrationState::Pending { reason } if reason.is_empty());
        self.until(|state| !untried(state)).await
    }

    /// Waits until the record stands, or will not stand any more.
    pub async fn registered(&self) -> RegistrationState {
        use RegistrationState::{Ended, Registered, Replaced};
        self.until(|state| matches!(state, Registered | Replaced | Ended)).await
    }

    /// Ends when a later life has replaced this one, or when it has not been registered for `patience` without a break; never
    /// by the latter if `patience` is zero.
    pub async fn lost(&self, patience: Duration) -> RegistrationState {
        use RegistrationState::{Ended, Registered, Replaced};
        let is_over = |state: &RegistrationState| matches!(state, Replaced | Ended);
        loop {
            let state = self.until(|state| *state != Registered).await;
            if is_over(&state) {
                return state;
            }
            let back = self.until(|state| *state == Registered || is_over(state));
            if patience.is_zero() {
                back.await;
            } else if tokio::time::timeout(patience, back).await.is_err() {
                return self.state();
            }
        }
    }

    async fn until(&self, holds: impl FnMut(&RegistrationState) -> bool) -> RegistrationState {
        let mut states = self.states.clone();
        match states.wait_for(holds).await {
            Ok(state) => state.clone(),
            Err(_) => RegistrationState::Ended,
        }
    }

    /// Takes the record back, and waits until it is gone or the store has had its time; then it goes with its lease.
    pub async fn end(self) -> RegistrationState {
        self.wanted.send_replace(None);
        let ended = self.until(|state| *state == RegistrationState::Ended);
        tokio::time::timeout(END_DEADLINE, ended).await.unwrap_or_else(|_| self.state())
    }
}

#[cfg(test)]
mod tests;
