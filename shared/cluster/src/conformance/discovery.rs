//! The rules of [`Discovery`] about records and watches as tests; those about leases are in
//! [`leases`](super::leases). Called from each implementation's tests.

use super::{
    DiscoveryFactory,
    follower::{Follower, TTL, by_key, keys, put, put_leased},
    within,
};
use crate::{Discovery, DiscoveryError, MAX_KEY_BYTES, MAX_VALUE_BYTES, Revision, WatchEvent};
use bytes::Bytes;
use std::time::Duration;

/// A watch starts with the state, and every change comes once, in order, also when only the value changed.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_01_a_watch_begins_with_the_state_and_misses_nothing(factory: &dyn DiscoveryFactory) {
    let connection = factory.connect("r1-watch").await;
    let discovery = connection.port();
    put(discovery, "workers/1", "a").await;
    put(discovery, "models/m", "outside").await;
    let mut follower = Follower::start(discovery, "workers/").await;
    assert_eq!(follower.contents(), [("workers/1", b"a".as_slice())]);

    put(discovery, "workers/1", "b").await;
    put(discovery, "models/m", "still outside").await;
    put(discovery, "workers/2", "c").await;
    assert!(discovery.delete("workers/1").await.unwrap());
    let last = put(discovery, "workers/3", "d").await;
    follower.until(|seen| seen.revision >= last).await;
    assert_eq!(follower.contents(), [("workers/2", b"c".as_slice()), ("workers/3", b"d")]);
    assert_eq!(follower.resyncs, 1, "nothing went wrong, so nothing starts over");
}

/// Watches of several connections see the changes of all, however many come, and end where `list` does.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_01_a_reader_that_falls_far_behind_ends_where_the_store_is(factory: &dyn DiscoveryFactory) {
    let (one, two) = (factory.connect("r1-slow").await, factory.connect("r1-slow").await);
    let mut slow = Follower::start(one.port(), "").await;
    let mut last = Revision(0);
    for round in 0..1_500_u32 {
        let writer = if round % 2 == 0 { one.port() } else { two.port() };
        last = put(writer, &format!("k/{}", round % 7), &round.to_string()).await;
        if round % 11 == 0 {
            writer.delete(&format!("k/{}", round % 5)).await.unwrap();
        }
    }
    last = last.max(put(two.port(), "end", "").await);
    slow.until(|seen| seen.revision >= last).await;
    assert_eq!(slow.entries, by_key(one.port().list("").await.unwrap()));
}

/// What happened while the connection was cut is in the next resync: changes, additions, deletions, and a key that was
/// deleted and put again.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_01_after_a_cut_the_watch_resumes_with_all_that_was_missed(factory: &dyn DiscoveryFactory) {
    let (cut, other) = (factory.connect("r1-cut").await, factory.connect("r1-cut").await);
    for key in ["gone", "changed", "reborn", "same"] {
        put(other.port(), key, "before").await;
    }
    let mut follower = Follower::start(cut.port(), "").await;
    let born = follower.entries["reborn"].create_revision;

    cut.cut().await;
    other.port().delete("gone").await.unwrap();
    other.port().delete("reborn").await.unwrap();
    for key in ["changed", "reborn", "added"] {
        put(other.port(), key, "during").await;
    }
    cut.restore().await;
    put(other.port(), "last", "after").await;

    follower.until(|seen| seen.has("last", "after")).await;
    let expected = by_key(other.port().list("").await.unwrap());
    assert_eq!(follower.entries, expected);
    assert!(expected["reborn"].create_revision > born, "a key put again is another one");
    assert!(!expected.contains_key("gone"));
}

/// A compaction ends in one resync, and the watch goes on.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_01_a_compaction_ends_in_one_resync(factory: &dyn DiscoveryFactory) {
    let connection = factory.connect("r1-compact").await;
    put(connection.port(), "a", "1").await;
    let mut follower = Follower::start(connection.port(), "").await;
    connection.force_resync().await;
    put(connection.port(), "b", "2").await;
    follower.until(|seen| seen.has("b", "2")).await;
    put(connection.port(), "c", "3").await;
    follower.until(|seen| seen.has("c", "3")).await;
    assert_eq!(follower.contents(), [("a", b"1".as_slice()), ("b", b"2"), ("c", b"3")]);
    assert_eq!(follower.resyncs, 2, "one resync at the start and one for the compaction");
}

/// Two clusters on one store, with names as alike as can be, never see each other.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_04_clusters_never_see_each_other(factory: &dyn DiscoveryFactory) {
    let names = ["r4", "r4/a", "r4.a", "r4%2Fa", "R4", ""];
    let mut connections = Vec::new();
    for name in names {
        connections.push(factory.connect(name).await);
    }
    for (connection, name) in connections.iter().zip(names) {
        put(connection.port(), "a/key", &format!("of {name}")).await;
    }
    for (connection, name) in connections.iter().zip(names) {
        let follower = Follower::start(connection.port(), "").await;
        assert_eq!(follower.contents(), [("a/key", format!("of {name}").as_bytes())]);
        assert_eq!(connection.port().list("").await.unwrap().entries.len(), 1);
        assert!(connection.port().delete("a/key").await.unwrap(), "it was still there");
    }
}

/// Revisions rise, `create_revision` tells a key's lives apart, and `get` and `list` agree.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_07_revisions_rise_and_tell_lives_apart(factory: &dyn DiscoveryFactory) {
    let connection = factory.connect("r7").await;
    let discovery = connection.port();
    let first = put(discovery, "k", "1").await;
    let second = put(discovery, "k", "2").await;
    let entry = discovery.get("k").await.unwrap().unwrap();
    assert!(second > first);
    assert_eq!(
        (entry.create_revision, entry.revision, entry.value.as_ref()),
        (first, second, b"2".as_slice())
    );
    assert_eq!(discovery.list("").await.unwrap().entries, [entry]);

    assert_eq!((discovery.delete("k").await, discovery.delete("k").await), (Ok(true), Ok(false)));
    assert_eq!(discovery.get("k").await, Ok(None));
    let third = put(discovery, "k", "3").await;
    let entry = discovery.get("k").await.unwrap().unwrap();
    assert!(third > second);
    assert_eq!((entry.create_revision, entry.revision), (third, third));
    assert!(discovery.list("").await.unwrap().revision >= third);
}

/// Lists are sorted and a prefix is compared byte by byte.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_08_lists_are_sorted_and_prefixes_are_bytes(factory: &dyn DiscoveryFactory) {
    let connection = factory.connect("r8").await;
    let discovery = connection.port();
    for key in ["workers/2", "workers/10", "workers/1", "workers", "models/a", "zz"] {
        put(discovery, key, "").await;
    }
    assert_eq!(keys(discovery, "workers/").await, ["workers/1", "workers/10", "workers/2"]);
    assert_eq!(keys(discovery, "workers/1").await, ["workers/1", "workers/10"]);
    assert_eq!(keys(discovery, "none/").await, Vec::<String>::new());
    let all = ["models/a", "workers", "workers/1", "workers/10", "workers/2", "zz"];
    assert_eq!(keys(discovery, "").await, all);
    let follower = Follower::start(discovery, "workers/1").await;
    assert_eq!(follower.contents().len(), 2);
}

/// What cannot be stored is refused by name, and what is just within the limits is stored.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_09_what_cannot_be_stored_is_refused(factory: &dyn DiscoveryFactory) {
    let connection = factory.connect("r9").await;
    let discovery = connection.port();
    for key in ["", "/absolute", "a//b", "folder/", "line\nbreak"] {
        let refused = [
            discovery.put(key, Bytes::new(), None).await.err(),
            discovery.get(key).await.err(),
            discovery.delete(key).await.err(),
        ];
        for error in refused {
            assert!(matches!(error, Some(DiscoveryError::InvalidKey { .. })), "{key:?}: {error:?}");
        }
    }
    assert!(discovery.list("/").await.is_err() && discovery.watch("/").await.is_err());
    let refused = discovery.put("k", Bytes::from(vec![0; MAX_VALUE_BYTES + 1]), None).await;
    let (bytes, limit) = (MAX_VALUE_BYTES + 1, MAX_VALUE_BYTES);
    assert_eq!(refused, Err(DiscoveryError::ValueTooLarge { key: "k".to_owned(), bytes, limit }));
    assert_eq!(discovery.grant(Duration::ZERO).await.err(), Some(DiscoveryError::InvalidTtl { ttl_ms: 0 }));
    assert_eq!(keys(discovery, "").await, Vec::<String>::new());

    let longest = "k".repeat(MAX_KEY_BYTES);
    discovery.put(&longest, Bytes::from(vec![7; MAX_VALUE_BYTES]), None).await.unwrap();
    assert_eq!(discovery.get(&longest).await.unwrap().unwrap().value.len(), MAX_VALUE_BYTES);
}

/// A put that expects something succeeds only where that holds, and of callers at one time one.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_17_a_put_that_expects_something_changes_nothing_else(factory: &dyn DiscoveryFactory) {
    let (one, two) = (factory.connect("r17").await, factory.connect("r17").await);
    let put_if = async |port: &dyn Discovery, value: &'static str, expected| {
        port.put_if("k", Bytes::from_static(value.as_bytes()), None, expected).await.unwrap()
    };
    let first = put_if(one.port(), "1", None).await.unwrap();
    assert_eq!(put_if(two.port(), "2", None).await, None, "it is there already");
    assert_eq!(put_if(two.port(), "2", Some(Revision(first.0 + 1_000))).await, None, "at another revision");
    let entry = one.port().get("k").await.unwrap().unwrap();
    assert_eq!((entry.revision, entry.value.as_ref()), (first, b"1".as_slice()));

    let (left, right) =
        tokio::join!(put_if(one.port(), "left", Some(first)), put_if(two.port(), "right", Some(first)));
    assert!(left.is_some() != right.is_some(), "{left:?} {right:?}");
    let entry = one.port().get("k").await.unwrap().unwrap();
    assert_eq!(Some(entry.revision), left.or(right));
    assert_eq!(entry.value.as_ref(), if left.is_some() { b"left".as_slice() } else { b"right" });

    let lease = two.port().grant(TTL).await.unwrap();
    let refused = two.port().put_if("k", Bytes::new(), Some(&lease), None).await;
    assert_eq!(refused, Ok(None));
    let leased = two.port().put_if("mine", Bytes::new(), Some(&lease), None).await;
    assert!(leased.is_ok_and(|put| put.is_some()));
    lease.revoke().await.unwrap();
    assert_eq!(
        keys(one.port(), "").await,
        ["k"],
        "the key that was put went with its lease, the other stays"
    );
}

/// While the store cannot be reached calls fail, leases live on and a new watch waits; afterwards all is as before.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_10_while_cut_calls_fail_and_nothing_is_lost(factory: &dyn DiscoveryFactory) {
    let (cut, other) = (factory.connect("r10").await, factory.connect("r10").await);
    // Longer than all the calls below may take together.
    let lease = cut.port().grant(TTL * 12).await.unwrap();
    put_leased(cut.port(), "mine", "1", &lease).await;
    cut.cut().await;
    let failed = [
        within("put", cut.port().put("k", Bytes::new(), None)).await.err(),
        within("put_if", cut.port().put_if("k", Bytes::new(), None, None)).await.err(),
        within("get", cut.port().get("k")).await.err(),
        within("list", cut.port().list("")).await.err(),
        within("delete", cut.port().delete("k")).await.err(),
        within("grant", cut.port().grant(TTL)).await.err(),
    ];
    for error in failed {
        assert!(matches!(error, Some(DiscoveryError::Unavailable { .. })), "{error:?}");
    }
    assert_eq!(keys(other.port(), "").await, ["mine"]);
    let mut early = within("watch", cut.port().watch("")).await.unwrap();
    assert_eq!(early.try_next(), None, "it waits for the store");
    cut.restore().await;
    let mut follower = Follower::start(other.port(), "").await;
    put_leased(cut.port(), "mine", "2", &lease).await;
    follower.until(|seen| seen.has("mine", "2")).await;
    let first = within("the first event of the early watch", early.next()).await;
    assert!(matches!(first, Some(WatchEvent::Resync(_))), "a watch begins with a resync, not with {first:?}");
}
