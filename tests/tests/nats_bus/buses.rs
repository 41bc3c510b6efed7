//! What the tests of the bus on NATS share: buses that notice quickly, and waiting for their health.

use std::time::Duration;
use switchtower_cluster::{BusError, ClusterName, EventBus};
use switchtower_nats::{NatsBus, NatsOptions};
use switchtower_runtime::TaskGroup;
use switchtower_tests::servers::{PATIENCE, eventually};
use tokio::time::{sleep, timeout};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(10);

/// Options that reconnect quickly and otherwise wait as long as in earnest.
pub(crate) fn options(url: &str) -> NatsOptions {
    NatsOptions {
        reconnect_first: Duration::from_millis(20),
        reconnect_max: Duration::from_millis(200),
        ..NatsOptions::new(url)
    }
}

/// Options that also notice a dead connection quickly.
pub(crate) fn quick(url: &str) -> NatsOptions {
    NatsOptions {
        ping_interval: Duration::from_millis(500),
        connect_timeout: Duration::from_secs(1),
        call_limit: Duration::from_millis(500),
        ..options(url)
    }
}

/// A bus whose tasks end with it.
pub(crate) async fn bus(options: NatsOptions) -> NatsBus {
    NatsBus::connect(options, &ClusterName::from("test"), &TaskGroup::new()).await.unwrap()
}

/// A bus that is connected.
pub(crate) async fn connected(options: NatsOptions) -> NatsBus {
    let bus = bus(options).await;
    until_connected(&bus).await;
    bus
}

/// Waits until it works. Its subscriptions are in force then.
pub(crate) async fn until_connected(bus: &NatsBus) {
    // Not `eventually`: a factory's futures are sent between threads, an async closure's cannot be.
    let works = async {
        while !bus.health().connected || bus.subscribe("is.it.there").await.is_err() {
            sleep(POLL).await;
        }
    };
    timeout(PATIENCE, works).await.expect("a connection");
}

/// Waits until the bus knows that it is not connected.
pub(crate) async fn until_disconnected(bus: &NatsBus) {
    let noticed = async {
        while bus.health().connected {
            sleep(POLL).await;
        }
    };
    timeout(PATIENCE, noticed).await.expect("the loss to be noticed");
}

/// Waits until health says this.
pub(crate) async fn until_it_says(bus: &NatsBus, wanted: &str) -> String {
    let mut said = String::new();
    eventually(wanted, PATIENCE, async || {
        said = bus.health().last_error.unwrap_or_default();
        said.contains(wanted)
    })
    .await;
    said
}

/// Whether a call could not be served.
pub(crate) fn is_unavailable<T>(outcome: &Result<T, BusError>) -> bool {
    matches!(outcome, Err(BusError::Unavailable { .. }))
}
