//! The ports' contract as tests that every implementation runs: one function per rule, in [`discovery`],
//! [`leases`], [`bus`] and [`requests`], named by the rule's number on the trait.
//!
//! An implementation's test gives a factory and calls each function from a test of its own. The functions **panic** where
//! the contract is broken; that is their way to report, so they have no place outside tests. They wait on conditions, with
//! a limit that only a broken implementation reaches. Each uses clusters of its own; a factory in front of a server that
//! keeps its data makes their names unique to the run.

pub mod bus;
pub mod discovery;
mod follower;
pub mod leases;
pub mod requests;

use crate::{Discovery, EventBus};
use async_trait::async_trait;
use std::time::Duration;

/// How long a condition may take before the contract counts as broken: far more than a real server needs to notice a
/// cut connection or a lost lease.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connects processes to the store under test.
#[async_trait]
pub trait DiscoveryFactory: Send + Sync {
    /// A new connection to `cluster`.
    async fn connect(&self, cluster: &str) -> Box<dyn DiscoveryUnderTest>;
}

/// One connection to a store, and what can go wrong with it.
#[async_trait]
pub trait DiscoveryUnderTest: Send + Sync {
    /// The connection.
    fn port(&self) -> &dyn Discovery;

    /// Cuts the connection. Leases live on in the store.
    async fn cut(&self);

    /// Lets the connection come back.
    async fn restore(&self);

    /// Makes the store lose all leases that this connection keeps, whether it is cut or not.
    async fn lose_leases(&self);

    /// Makes this connection's watches start over: a compaction, or a reconnect too late to resume.
    async fn force_resync(&self);
}

/// Connects processes to the bus under test.
#[async_trait]
pub trait BusFactory: Send + Sync {
    /// A new connection to `cluster`.
    async fn connect(&self, cluster: &str) -> Box<dyn BusUnderTest>;
}

/// One connection to a bus, and what can go wrong with it.
#[async_trait]
pub trait BusUnderTest: Send + Sync {
    /// The connection.
    fn port(&self) -> &dyn EventBus;

    /// Cuts the connection.
    async fn cut(&self);

    /// Lets the connection come back, and returns when its subscriptions are in force again.
    async fn restore(&self);
}

/// The outcome of `future`, or the end of the test.
async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(outcome) => outcome,
        Err(_) => panic!("waited in vain: {what}"),
    }
}
