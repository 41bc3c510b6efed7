//! A lease: keys that live as long as the process that put them.
//!
//! The handle owns the lease by drop; keeping it alive, and getting it back when the store loses it (rule 2), is the
//! implementation's work. Must not be cloned: one handle, one owner. Workers and replicas hold one for their records.

use crate::DiscoveryError;
use async_trait::async_trait;
use std::{fmt, sync::Arc, time::Duration};

/// Names a lease towards the connection that granted it. It stays the same when the store loses the lease and the
/// implementation gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How an implementation ends its leases.
#[async_trait]
pub trait LeaseControl: Send + Sync {
    /// Ends the lease and removes its keys, and returns when that is done. Ending it twice is no error.
    async fn revoke(&self, lease: LeaseId) -> Result<(), DiscoveryError>;

    /// Stops keeping the lease and has its keys removed as soon as can be, at the latest when its TTL has passed.
    /// Called by the handle's drop, so it must neither block nor fail; also after `revoke`.
    fn release(&self, lease: LeaseId);
}

/// A lease that is kept alive while this handle lives. Dropping it ends the lease and removes its keys.
#[must_use = "dropping the handle ends the lease and removes its keys"]
pub struct Lease {
    id: LeaseId,
    ttl: Duration,
    control: Arc<dyn LeaseControl>,
}

impl Lease {
    /// For implementations: the handle of a lease that was just granted.
    pub fn new(id: LeaseId, ttl: Duration, control: Arc<dyn LeaseControl>) -> Self {
        Self { id, ttl, control }
    }

    /// Its name at the connection that granted it.
    #[must_use]
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// How long its keys outlive a process that stops keeping it.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Ends the lease and waits until its keys are gone: what an orderly shutdown does, where drop only asks for it.
    ///
    /// # Errors
    /// The store cannot be reached; then the keys go when the TTL has passed.
    pub async fn revoke(self) -> Result<(), DiscoveryError> {
        self.control.revoke(self.id).await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.control.release(self.id);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("id", &self.id).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
