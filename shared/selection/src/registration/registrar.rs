//! The task behind a [`Registration`](super::Registration).

use super::{
    RegistrationState,
    judge::{Found, judge},
};
use crate::records::{RecordError, RefusedClaim, WorkerRecord};
use std::{sync::Arc, time::Duration};
use switchtower_cluster::{Discovery, DiscoveryError, Lease, LeaseId, Watch, WatchEvent};
use switchtower_runtime::retry::{Backoff, Failures, RetryTimes};
use tokio::sync::watch;

/// What is logged when it fails and works again.
const WHAT: &str = "registering the worker";

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("the record at `{0}` changed at the same time")]
    Raced(String),
}

/// See the [module](self).
pub(super) struct Registrar {
    discovery: Arc<dyn Discovery>,
    ttl: Duration,
    wanted: watch::Receiver<Option<WorkerRecord>>,
    state: watch::Sender<RegistrationState>,
    lease: Option<Lease>,
    /// The lease that the record was put under.
    put_under: Option<LeaseId>,
    /// The claim that is shown while another worker has the id.
    claim: Option<RefusedClaim>,
    changes: Option<Watch>,
}

impl Registrar {
    pub(super) fn new(
        discovery: Arc<dyn Discovery>,
        ttl: Duration,
        wanted: watch::Receiver<Option<WorkerRecord>>,
        state: watch::Sender<RegistrationState>,
    ) -> Self {
        Self { discovery, ttl, wanted, state, lease: None, put_under: None, claim: None, changes: None }
    }

    /// Runs until the registration is ended, dropped or replaced.
    pub(super) async fn run(mut self) {
        let (mut backoff, mut failures) = (Backoff::new(RetryTimes::default()), Failures::default());
        loop {
            let Some(record) = self.wanted.borrow_and_update().clone() else { break };
            let pause = match self.attempt(&record).await {
                Ok(RegistrationState::Replaced) => {
                    self.show(&record, RegistrationState::Replaced);
                    return;
                }
                Ok(state) => {
                    backoff.reset();
                    failures.succeeded(WHAT);
                    self.show(&record, state);
                    self.ttl / 2
                }
                Err(error) => {
                    // That the store is away is said by its connection.
                    if !matches!(error, AttemptError::Discovery(DiscoveryError::Unavailable { .. })) {
                        failures.failed(WHAT, &error);
                    }
                    self.show(&record, RegistrationState::Pending { reason: error.to_string() });
                    backoff.next_delay()
                }
            };
            let key = record.key();
            tokio::select! {
                changed = self.wanted.changed() => if changed.is_err() { return },
                () = changed_at(&mut self.changes, &key) => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.end().await;
    }

    async fn attempt(&mut self, record: &WorkerRecord) -> Result<RegistrationState, AttemptError> {
        let attempt = self.reconcile(record).await;
        if let Err(AttemptError::Discovery(DiscoveryError::UnknownLease { .. })) = &attempt {
            self.lease = None;
        }
        attempt
    }

    async fn reconcile(&mut self, record: &WorkerRecord) -> Result<RegistrationState, AttemptError> {
        let key = record.key();
        if self.lease.is_none() {
            self.lease = Some(self.discovery.grant(self.ttl).await?);
        }
        if self.changes.is_none() {
            self.changes = Some(self.discovery.watch(&key).await?);
        }
        let found = self.discovery.get(&key).await?;
        let expected = match judge(found.as_ref(), record, self.put_under.is_some()) {
            Found::Own(_) if self.is_put_under_lease() => return Ok(RegistrationState::Registered),
            Found::Own(revision) => Some(revision),
            Found::Free(expected) => expected,
            Found::Taken { reason } => {
                self.claim(record, &reason).await?;
                return Ok(RegistrationState::Refused { reason });
            }
            Found::Replaced => return Ok(RegistrationState::Replaced),
        };
        let put = self.discovery.put_if(&key, record.to_json()?.into(), self.lease.as_ref(), expected);
        if put.await?.is_none() {
            return Err(AttemptError::Raced(key));
        }
        self.put_under = self.lease.as_ref().map(Lease::id);
        self.unclaim().await?;
        Ok(RegistrationState::Registered)
    }

    fn is_put_under_lease(&self) -> bool {
        self.put_under.is_some() && self.put_under == self.lease.as_ref().map(Lease::id)
    }

    /// Shows everybody that this life waits for its id.
    async fn claim(&mut self, record: &WorkerRecord, reason: &str) -> Result<(), AttemptError> {
        let claim = RefusedClaim::new(record.worker_id, record.incarnation, &record.endpoint, reason);
        if self.claim.as_ref() != Some(&claim) {
            self.discovery.put(&claim.key(), claim.to_json()?.into(), self.lease.as_ref()).await?;
            self.claim = Some(claim);
        }
        Ok(())
    }

    async fn unclaim(&mut self) -> Result<(), AttemptError> {
        if let Some(claim) = &self.claim {
            self.discovery.delete(&claim.key()).await?;
            self.claim = None;
        }
        Ok(())
    }

    fn show(&self, record: &WorkerRecord, state: RegistrationState) {
        if *self.state.borrow() == state {
            return;
        }
        let worker = record.worker_id.0;
        match &state {
            RegistrationState::Registered => tracing::info!(worker, "the worker is registered"),
            RegistrationState::Refused { reason } => {
                tracing::warn!(worker, reason, "the worker's id is taken");
            }
            RegistrationState::Replaced => tracing::error!(worker, "a later life has replaced this worker"),
            RegistrationState::Pending { .. } | RegistrationState::Ended => {}
        }
        self.state.send_replace(state);
    }

    async fn end(mut self) {
        if let Some(lease) = self.lease.take()
            && let Err(error) = lease.revoke().await
        {
            tracing::warn!(%error, "the worker's record stays until its lease ends");
        }
        self.state.send_replace(RegistrationState::Ended);
    }
}

/// Ends at the next change of `key`, or when there is no watch that could tell.
async fn changed_at(changes: &mut Option<Watch>, key: &str) {
    let Some(watch) = changes else { return std::future::pending().await };
    loop {
        match watch.next().await {
            Some(WatchEvent::Resync(_)) => return,
            Some(WatchEvent::Put(entry)) if entry.key == key => return,
            Some(WatchEvent::Delete { key: deleted, .. }) if deleted == key => return,
            Some(_) => {}
            None => {
                *changes = None;
                return std::future::pending().await;
            }
        }
    }
}
