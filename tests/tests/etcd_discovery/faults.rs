//! One server in trouble: frozen, killed, emptied, compacted, behind a black hole, without our leases.

use crate::{
    follower::Follower,
    rig::{Link, TTL, on_every_version},
};
use bytes::Bytes;
use serde_json::json;
use std::time::Duration;
use switchtower_cluster::{Discovery, DiscoveryError};
use switchtower_tests::servers::{PATIENCE, etcd::Etcd, eventually};
use tokio::time::sleep;

/// An owner with a leased key `workers/1`, and what a witness sees of it.
async fn registered(etcd: &Etcd) -> (Link, switchtower_cluster::Lease, Link, Follower) {
    let owner = Link::connect(etcd, "c").await;
    let lease = owner.discovery.grant(TTL).await.unwrap();
    owner.put_leased("workers/1", "me", &lease).await;
    let witness = owner.beside("c").await;
    let follower = Follower::start(&witness.discovery).await;
    (owner, lease, witness, follower)
}

/// The key is there and stays: it is under a lease that is kept.
async fn stays(follower: &mut Follower) {
    follower.until("the key is back", |seen| seen.has("workers/1", "me")).await;
    follower.listen(TTL * 2).await;
    follower.until("the key stays", |seen| seen.has("workers/1", "me")).await;
}

#[tokio::test]
async fn b01_a_server_frozen_for_three_ttls_costs_nobody_its_registration() {
    on_every_version(async |etcd| {
        let (owner, lease, _witness, mut follower) = registered(&etcd).await;
        etcd.stop();
        owner.until_connected(false).await;
        let failed = owner.discovery.get("workers/1").await;
        assert!(matches!(failed, Err(DiscoveryError::Unavailable { .. })), "{failed:?}");
        sleep(TTL * 3).await;
        etcd.cont();
        owner.until_connected(true).await;
        stays(&mut follower).await;
        owner.put_leased("workers/1", "later", &lease).await;
        follower.until("the handle is good", |seen| seen.has("workers/1", "later")).await;
        assert!(owner.discovery.health().reconnects >= 1);
    })
    .await;
}

#[tokio::test]
async fn b01_a_server_killed_and_restarted_with_its_data_costs_nobody_its_registration() {
    on_every_version(async |mut etcd| {
        let (owner, lease, _witness, mut follower) = registered(&etcd).await;
        etcd.kill();
        owner.until_connected(false).await;
        etcd.restart().await;
        stays(&mut follower).await;
        lease.revoke().await.unwrap();
        follower.until("the end of the lease", |seen| seen.entries.is_empty()).await;
    })
    .await;
}

#[tokio::test]
async fn b01_a_server_restarted_without_its_data_gets_the_registrations_again() {
    on_every_version(async |mut etcd| {
        let (owner, lease, witness, mut follower) = registered(&etcd).await;
        witness.put("settings/a", "lost with the data").await;
        follower.until("the setting", |seen| seen.entries.len() == 2).await;
        etcd.restart_empty().await;
        follower.until("the loss", |seen| !seen.entries.contains_key("settings/a")).await;
        stays(&mut follower).await;
        owner.put_leased("workers/2", "later", &lease).await;
        follower.until("the handle is good", |seen| seen.has("workers/2", "later")).await;
    })
    .await;
}

#[tokio::test]
async fn b03_a_lease_that_etcd_lost_is_noticed_each_time_and_none_is_left_behind() {
    on_every_version(async |etcd| {
        let (_owner, _lease, _witness, mut follower) = registered(&etcd).await;
        for _ in 0..3 {
            let born = follower.entries["workers/1"].create_revision;
            etcd.revoke_all_leases().await;
            let reborn = |seen: &Follower| {
                seen.entries.get("workers/1").is_some_and(|entry| entry.create_revision > born)
            };
            follower.until("the key under a new lease", reborn).await;
        }
        let leases = etcd.ask("lease/leases", &json!({})).await;
        assert_eq!(leases["leases"].as_array().map(Vec::len), Some(1), "{leases}");
    })
    .await;
}

#[tokio::test]
async fn b19_a_put_that_finds_its_lease_lost_gets_it_back_first() {
    on_every_version(async |etcd| {
        // A lease so long that no keep-alive notices first.
        let owner = Link::connect(&etcd, "c").await;
        let lease = owner.discovery.grant(Duration::from_secs(600)).await.unwrap();
        owner.put_leased("workers/1", "first", &lease).await;
        etcd.revoke_all_leases().await;
        assert!(owner.keys().await.is_empty());
        owner.put_leased("workers/2", "second", &lease).await;
        assert_eq!(owner.keys().await, ["workers/1", "workers/2"]);
        etcd.revoke_all_leases().await;
        let put = owner.discovery.put_if("workers/3", Bytes::new(), Some(&lease), None).await;
        assert!(put.is_ok_and(|put| put.is_some()));
        assert_eq!(owner.keys().await, ["workers/1", "workers/2", "workers/3"]);
    })
    .await;
}

#[tokio::test]
async fn b06_a_watch_that_lags_behind_a_compaction_starts_over_once() {
    on_every_version(async |etcd| {
        let writer = Link::connect(&etcd, "c").await;
        // Patient enough not to notice the stall: the server must be the one that ends the watch.
        let reader = Link::connect_with(&etcd, "c", |options| {
            options.probe_interval = PATIENCE;
            options.probe_timeout = PATIENCE;
            options.progress_interval = PATIENCE;
        })
        .await;
        let mut follower = Follower::start(&reader.discovery).await;
        reader.proxy.stall().await;
        // More than the path and the server's buffers hold.
        let value = "v".repeat(30_000);
        for round in 0..400 {
            writer.put("busy", &format!("{round}{value}")).await;
        }
        writer.discovery.delete("busy").await.unwrap();
        let last = writer.put("last", "1").await;
        etcd.compact().await;
        reader.proxy.pass().await;
        follower.until("the newest", |seen| seen.has("last", "1")).await;
        assert_eq!(follower.entries["last"].revision, last);
        assert_eq!(follower.entries.len(), 1);
        assert_eq!(follower.resyncs, 2, "one at the start and one for the compaction");
        writer.put("after", "2").await;
        follower.until("what comes after", |seen| seen.has("after", "2")).await;
        assert_eq!(follower.resyncs, 2);
    })
    .await;
}

#[tokio::test]
async fn b07_a_black_hole_is_noticed_and_nothing_is_missed() {
    on_every_version(async |etcd| {
        let (_owner, _lease, witness, mut follower) = registered(&etcd).await;
        witness.proxy.stall().await;
        witness.until_connected(false).await;
        let error = witness.discovery.health().last_error.unwrap_or_default();
        assert!(error.contains("sign of life"), "{error}");
        let other = Link::connect(&etcd, "c").await;
        other.put("during", "1").await;
        assert!(follower.resyncs == 1 && !follower.has("during", "1"));
        witness.proxy.pass().await;
        follower.until("what was missed", |seen| seen.has("during", "1")).await;
        assert!(follower.resyncs >= 2);
    })
    .await;
}

#[tokio::test]
async fn b08_a_server_killed_again_and_again_leaves_every_task_at_work() {
    on_every_version(async |mut etcd| {
        let (owner, _lease, witness, mut follower) = registered(&etcd).await;
        let tasks = (owner.tasks.live(), witness.tasks.live());
        for round in 0..5 {
            etcd.kill();
            owner.until_connected(false).await;
            etcd.restart().await;
            owner.until_connected(true).await;
            witness.until_connected(true).await;
            let (key, value) = (format!("rounds/{round}"), round.to_string());
            owner.put(&key, &value).await;
            follower.until("the round's key", |seen| seen.has(&key, &value)).await;
        }
        stays(&mut follower).await;
        assert_eq!((owner.tasks.live(), witness.tasks.live()), tasks);
        assert_eq!(follower.entries.len(), 6);
    })
    .await;
}

#[tokio::test]
async fn b15_a_delete_during_a_cut_is_always_in_the_resync() {
    on_every_version(async |etcd| {
        let (registry, router) = (Link::connect(&etcd, "c").await, Link::connect(&etcd, "c").await);
        let mut follower = Follower::start(&router.discovery).await;
        for trial in 0..10 {
            for worker in 0..3 {
                registry.put(&format!("workers/{worker}"), "").await;
            }
            follower.until("all three", |seen| seen.entries.len() == 3).await;
            router.cut().await;
            let removed = format!("workers/{}", trial % 3);
            registry.discovery.delete(&removed).await.unwrap();
            router.restore().await;
            follower.until("the deletion", |seen| !seen.entries.contains_key(&removed)).await;
            assert_eq!(follower.entries.len(), 2, "trial {trial}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_short_cut_that_no_probe_sees_is_a_resync_too() {
    on_every_version(async |etcd| {
        let writer = Link::connect(&etcd, "c").await;
        let reader = Link::connect_with(&etcd, "c", |options| options.probe_interval = PATIENCE).await;
        let mut follower = Follower::start(&reader.discovery).await;
        for round in 0..5 {
            reader.proxy.refuse().await;
            writer.put("k", &round.to_string()).await;
            reader.proxy.pass().await;
            follower.until("the change", |seen| seen.has("k", &round.to_string())).await;
        }
        assert!(follower.resyncs >= 6);
        eventually("the connection", PATIENCE, async || reader.discovery.get("k").await.is_ok()).await;
    })
    .await;
}
