//! How a connection begins and ends, and large contents.

use crate::{
    follower::Follower,
    rig::{Link, TTL, on_every_version},
};
use bytes::Bytes;
use std::time::Duration;
use switchtower_cluster::{Discovery, DiscoveryError, MAX_VALUE_BYTES};
use switchtower_tests::servers::{PATIENCE, eventually};
use tokio::time::timeout;

#[tokio::test]
async fn without_a_server_at_start_calls_fail_watches_wait_and_all_is_well_when_it_comes() {
    on_every_version(async |mut etcd| {
        let server = etcd.address();
        etcd.kill();
        let link = Link::start(server, "c", |_| {}).await;
        let mut follower = Follower::new(&link.discovery).await;
        let failed = timeout(PATIENCE, link.discovery.list("")).await.unwrap();
        assert!(matches!(failed, Err(DiscoveryError::Unavailable { .. })), "{failed:?}");
        let failed = timeout(PATIENCE, link.discovery.grant(TTL)).await.unwrap();
        assert!(matches!(failed, Err(DiscoveryError::Unavailable { .. })), "{failed:?}");
        let health = link.discovery.health();
        assert!(!health.connected && health.last_error.is_some(), "{health:?}");
        etcd.restart().await;
        follower.until("the first resync", |seen| seen.resyncs == 1).await;
        link.put("k", "1").await;
        follower.until("a change", |seen| seen.has("k", "1")).await;
        assert_eq!((follower.resyncs, link.discovery.health().reconnects), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn an_orderly_shutdown_can_still_revoke_and_leaves_no_task() {
    on_every_version(async |etcd| {
        let link = Link::connect(&etcd, "c").await;
        let witness = link.beside("c").await;
        let (revoked, dropped) =
            (link.discovery.grant(TTL).await.unwrap(), link.discovery.grant(TTL).await.unwrap());
        link.put_leased("revoked", "", &revoked).await;
        link.put_leased("dropped", "", &dropped).await;
        let mut watch = link.discovery.watch("").await.unwrap();
        link.tasks.shutdown_token().cancel();
        revoked.revoke().await.unwrap();
        assert_eq!(witness.keys().await, ["dropped"]);
        drop(dropped);
        assert_eq!(link.tasks.shutdown(PATIENCE).await, Vec::<String>::new());
        assert!(witness.keys().await.is_empty());
        let ended = async { while watch.next().await.is_some() {} };
        timeout(PATIENCE, ended).await.expect("the watch ends with its connection");
        let late = link.discovery.get("k").await;
        assert!(matches!(late, Ok(None) | Err(DiscoveryError::Unavailable { .. })), "{late:?}");
    })
    .await;
}

#[tokio::test]
async fn the_last_handle_takes_its_keys_watches_and_tasks_along() {
    on_every_version(async |etcd| {
        let witness = Link::connect(&etcd, "c").await;
        let Link { discovery, tasks, proxy: _proxy, .. } = Link::connect(&etcd, "c").await;
        // Longer than the test: nobody waits for the TTL.
        let lease = discovery.grant(Duration::from_secs(600)).await.unwrap();
        discovery.put("k", Bytes::new(), Some(&lease)).await.unwrap();
        let mut watch = discovery.watch("").await.unwrap();
        drop(discovery);
        assert_eq!(witness.keys().await, ["k"], "the lease holds the connection");
        drop(lease);
        eventually("the key is gone", PATIENCE, async || witness.keys().await.is_empty()).await;
        let ended = async { while watch.next().await.is_some() {} };
        timeout(PATIENCE, ended).await.expect("the watch ends with its connection");
        eventually("the tasks are gone", PATIENCE, async || tasks.live() == 0).await;
    })
    .await;
}

#[tokio::test]
async fn a_watch_whose_reader_left_costs_nothing_any_more() {
    on_every_version(async |etcd| {
        let link = Link::connect(&etcd, "c").await;
        let before = link.tasks.live();
        let follower = Follower::start(&link.discovery).await;
        assert_eq!(link.tasks.live(), before + 1);
        drop(follower);
        eventually("the task is gone", PATIENCE, async || link.tasks.live() == before).await;
    })
    .await;
}

#[tokio::test]
async fn many_records_and_large_ones_are_listed_in_pages() {
    on_every_version(async |etcd| {
        // 40 MB through a busy machine's disk take their time.
        let link = Link::connect_with(&etcd, "c", |options| {
            (options.call_timeout, options.probe_timeout) = (PATIENCE, PATIENCE);
        })
        .await;
        let writer = &link;
        let puts = (0..1_100).map(|number| async move { writer.put(&format!("many/{number:04}"), "").await });
        futures::future::join_all(puts).await;
        let value = Bytes::from(vec![b'v'; MAX_VALUE_BYTES]);
        for number in 0..20 {
            link.discovery.put(&format!("large/{number:02}"), value.clone(), None).await.unwrap();
        }
        let listed = link.discovery.list("").await.unwrap();
        assert_eq!(listed.entries.len(), 1_120);
        assert!(listed.entries.is_sorted_by(|one, two| one.key < two.key));
        assert!(listed.entries[..20].iter().all(|entry| entry.value == value));
        let mut follower = Follower::start(&link.discovery).await;
        assert_eq!(follower.entries.len(), 1_120);
        // Changes that come in one answer of the server's are as large.
        for number in 0..20 {
            link.discovery.put(&format!("large/{number:02}"), value.slice(1..), None).await.unwrap();
        }
        let changed = |seen: &Follower| seen.entries["large/19"].value.len() == MAX_VALUE_BYTES - 1;
        follower.until("the large changes", changed).await;
        assert_eq!(follower.entries.len(), 1_120);
    })
    .await;
}
