//! Clusters of three members, of which one dies or freezes.

use crate::{
    follower::Follower,
    rig::{TTL, options, put},
};
use std::time::Duration;
use switchtower_cluster::Discovery;
use switchtower_etcd::{EtcdDiscovery, EtcdOptions};
use switchtower_runtime::TaskGroup;
use switchtower_tests::servers::{
    PATIENCE,
    etcd::{Etcd, programs},
    eventually,
};

/// A connection to these members, in this order.
async fn connect(members: &[&Etcd]) -> EtcdDiscovery {
    let options = EtcdOptions {
        call_timeout: Duration::from_secs(10),
        ..options(members.iter().map(|member| member.endpoint()))
    };
    let discovery = EtcdDiscovery::connect(options, &"c".into(), &TaskGroup::new()).unwrap();
    eventually("a connection", PATIENCE, async || discovery.health().connected).await;
    discovery
}

/// Breaks the member that a watch and a lease are on, and goes on.
async fn survives(members: &mut [Etcd], break_it: impl Fn(&mut Etcd)) {
    let [first, second, third] = members else {
        panic!("three members were asked for");
    };
    let watcher = connect(&[first, second, third]).await;
    let lease = watcher.grant(TTL * 3).await.unwrap();
    put(&watcher, "workers/1", "me", Some(&lease)).await;
    let mut follower = Follower::start(&watcher).await;
    break_it(first);
    let writer = connect(&[second, third]).await;
    put(&writer, "during", "1", None).await;
    follower.until("a change made on another member", |seen| seen.has("during", "1")).await;
    assert!(follower.resyncs >= 2, "there was a gap");
    let seen = follower.entries["workers/1"].clone();
    put(&watcher, "workers/1", "still me", Some(&lease)).await;
    follower.until("a change of our own", |seen| seen.has("workers/1", "still me")).await;
    assert_eq!(follower.entries["workers/1"].create_revision, seen.create_revision, "the lease was kept");
    assert!(watcher.health().connected && watcher.health().reconnects >= 1);
}

#[tokio::test]
async fn b05_the_watched_member_dies_and_another_is_watched() {
    for program in programs() {
        survives(&mut Etcd::start_cluster(&program, 3).await, Etcd::kill).await;
    }
}

#[tokio::test]
async fn b07_the_watched_member_freezes_and_another_is_watched() {
    for program in programs() {
        survives(&mut Etcd::start_cluster(&program, 3).await, |member| member.stop()).await;
    }
}

#[tokio::test]
async fn a_member_without_its_cluster_is_not_used() {
    let program = programs().swap_remove(0);
    let mut members = Etcd::start_cluster(&program, 3).await;
    let discovery = connect(&[&members[0]]).await;
    let mut follower = Follower::start(&discovery).await;
    members[1].kill();
    members[2].kill();
    eventually("the loss of the majority", PATIENCE, async || !discovery.health().connected).await;
    members[1].restart().await;
    put(&discovery, "after", "1", None).await;
    follower.until("what comes after", |seen| seen.has("after", "1")).await;
}
