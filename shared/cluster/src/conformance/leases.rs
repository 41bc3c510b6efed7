//! The rules of [`Discovery`](crate::Discovery) about leases as tests. Called from each implementation's tests.

use super::{
    DiscoveryFactory,
    follower::{Follower, TTL, keys, put, put_leased},
};
use crate::DiscoveryError;
use bytes::Bytes;

/// A lease that the store loses comes back with the latest values, and its handle stays good.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_02_a_lost_lease_is_got_back_with_its_keys(factory: &dyn DiscoveryFactory) {
    let (owner, other) = (factory.connect("r2-lost").await, factory.connect("r2-lost").await);
    let lease = owner.port().grant(TTL).await.unwrap();
    put_leased(owner.port(), "workers/1", "old", &lease).await;
    put_leased(owner.port(), "workers/1", "new", &lease).await;
    put_leased(owner.port(), "workers/2", "deleted", &lease).await;
    owner.port().delete("workers/2").await.unwrap();
    let mut follower = Follower::start(other.port(), "workers/").await;
    let born = follower.entries["workers/1"].create_revision;

    owner.lose_leases().await;
    let came_back =
        |seen: &Follower| seen.entries.get("workers/1").is_some_and(|entry| entry.create_revision > born);
    follower.until(came_back).await;
    assert_eq!(follower.contents(), [("workers/1", b"new".as_slice())]);

    put_leased(owner.port(), "workers/3", "later", &lease).await;
    follower.until(|seen| seen.has("workers/3", "later")).await;
    let expected = [("workers/1", b"new".as_slice()), ("workers/3", b"later")];
    assert_eq!(follower.contents(), expected, "what was deleted does not come back");
    lease.revoke().await.unwrap();
    follower.until(|seen| seen.entries.is_empty()).await;
}

/// A connection that was away until its leases ran out puts its keys again when it returns.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_02_a_connection_that_was_away_puts_its_keys_again(factory: &dyn DiscoveryFactory) {
    let (owner, other) = (factory.connect("r2-away").await, factory.connect("r2-away").await);
    let lease = owner.port().grant(TTL).await.unwrap();
    put_leased(owner.port(), "workers/1", "me", &lease).await;
    let mut follower = Follower::start(other.port(), "").await;
    owner.cut().await;
    owner.lose_leases().await;
    follower.until(|seen| seen.entries.is_empty()).await;
    owner.restore().await;
    follower.until(|seen| seen.has("workers/1", "me")).await;
    drop(lease);
    follower.until(|seen| seen.entries.is_empty()).await;
}

/// A lease that comes back does not take a key from whoever put it meanwhile.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_02_a_lease_that_comes_back_leaves_a_later_life_alone(factory: &dyn DiscoveryFactory) {
    let (former, later) = (factory.connect("r2-later").await, factory.connect("r2-later").await);
    let former_lease = former.port().grant(TTL).await.unwrap();
    put_leased(former.port(), "workers/1", "former", &former_lease).await;
    put_leased(former.port(), "workers/2", "former", &former_lease).await;
    former.cut().await;
    former.lose_leases().await;
    let later_lease = later.port().grant(TTL).await.unwrap();
    put_leased(later.port(), "workers/1", "later", &later_lease).await;
    let mut follower = Follower::start(later.port(), "").await;
    former.restore().await;
    follower.until(|seen| seen.has("workers/2", "former")).await;
    assert!(follower.has("workers/1", "later"));
    // Nor does it take it along when it ends.
    former_lease.revoke().await.unwrap();
    follower.until(|seen| !seen.entries.contains_key("workers/2")).await;
    assert_eq!(keys(later.port(), "").await, ["workers/1"]);
}

/// A lease's end, by drop or by hand, takes its own keys and no others.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_06_the_end_of_a_lease_takes_its_keys_and_no_others(factory: &dyn DiscoveryFactory) {
    let connection = factory.connect("r6").await;
    let discovery = connection.port();
    let (dropped, revoked) = (discovery.grant(TTL).await.unwrap(), discovery.grant(TTL).await.unwrap());
    put_leased(discovery, "of/dropped", "", &dropped).await;
    put_leased(discovery, "of/revoked", "", &revoked).await;
    put_leased(discovery, "moved/to-revoked", "", &dropped).await;
    put_leased(discovery, "moved/to-revoked", "", &revoked).await;
    put_leased(discovery, "moved/to-none", "", &dropped).await;
    put(discovery, "moved/to-none", "").await;
    let mut follower = Follower::start(discovery, "").await;

    drop(dropped);
    follower.until(|seen| !seen.entries.contains_key("of/dropped")).await;
    assert_eq!(keys(discovery, "").await, ["moved/to-none", "moved/to-revoked", "of/revoked"]);
    revoked.revoke().await.unwrap();
    assert_eq!(keys(discovery, "").await, ["moved/to-none"], "revoke returns when the keys are gone");
    connection.lose_leases().await;
    assert_eq!(keys(discovery, "").await, ["moved/to-none"]);
}

/// A lease of another connection is refused.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_06_a_lease_is_good_only_where_it_was_granted(factory: &dyn DiscoveryFactory) {
    let (one, two) = (factory.connect("r6-foreign").await, factory.connect("r6-foreign").await);
    let lease = one.port().grant(TTL).await.unwrap();
    let refused = two.port().put("k", Bytes::new(), Some(&lease)).await;
    assert_eq!(refused, Err(DiscoveryError::UnknownLease { lease: lease.id() }));
    assert_eq!(two.port().get("k").await, Ok(None));
}

/// A lease whose handle goes while the store cannot be reached does not come back.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_10_a_lease_dropped_while_cut_stays_gone(factory: &dyn DiscoveryFactory) {
    let (cut, other) = (factory.connect("r10-drop").await, factory.connect("r10-drop").await);
    let lease = cut.port().grant(TTL).await.unwrap();
    put_leased(cut.port(), "mine", "1", &lease).await;
    let mut follower = Follower::start(other.port(), "").await;
    cut.cut().await;
    drop(lease);
    cut.restore().await;
    follower.until(|seen| seen.entries.is_empty()).await;
    put(cut.port(), "last", "").await;
    follower.until(|seen| seen.entries.contains_key("last")).await;
    assert_eq!(keys(other.port(), "").await, ["last"]);
}
