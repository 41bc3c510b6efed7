//! The in-memory ports keep the contract: every rule of the conformance suites, and the field reports they stand for.

use async_trait::async_trait;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use switchtower_cluster::{
    ClusterName, Discovery, EventBus, WatchEvent,
    conformance::{self, BusFactory, BusUnderTest, DiscoveryFactory, DiscoveryUnderTest},
    memory::{BusFaults, MemoryBus, MemoryCluster, MemoryDiscovery, MemoryEventBus, MemoryStore},
};

#[derive(Default)]
struct Store(MemoryStore);

#[derive(Default)]
struct Bus(MemoryBus);

struct StoreConnection(MemoryDiscovery);

struct BusConnection(MemoryEventBus);

#[async_trait]
impl DiscoveryFactory for Store {
    async fn connect(&self, cluster: &str) -> Box<dyn DiscoveryUnderTest> {
        Box::new(StoreConnection(self.0.connect(&ClusterName::from(cluster))))
    }
}

#[async_trait]
impl DiscoveryUnderTest for StoreConnection {
    fn port(&self) -> &dyn Discovery {
        &self.0
    }

    async fn cut(&self) {
        self.0.set_reachable(false);
    }

    async fn restore(&self) {
        self.0.set_reachable(true);
    }

    async fn lose_leases(&self) {
        self.0.expire_leases();
    }

    async fn force_resync(&self) {
        self.0.force_resync();
    }
}

#[async_trait]
impl BusFactory for Bus {
    async fn connect(&self, cluster: &str) -> Box<dyn BusUnderTest> {
        Box::new(BusConnection(self.0.connect(&ClusterName::from(cluster))))
    }
}

#[async_trait]
impl BusUnderTest for BusConnection {
    fn port(&self) -> &dyn EventBus {
        &self.0
    }

    async fn cut(&self) {
        self.0.set_reachable(false);
    }

    async fn restore(&self) {
        self.0.set_reachable(true);
    }
}

/// One test per rule: `name => suite::function`.
macro_rules! conforms {
    ($factory:ty: $($name:ident => $suite:ident :: $rule:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $name() {
            conformance::$suite::$rule(&<$factory>::default()).await;
        }
    )*};
}

conforms! { Store:
    discovery_rule_01_start => discovery::rule_01_a_watch_begins_with_the_state_and_misses_nothing,
    discovery_rule_01_slow_reader => discovery::rule_01_a_reader_that_falls_far_behind_ends_where_the_store_is,
    b05_b15_a_watch_that_was_cut_learns_all_it_missed
        => discovery::rule_01_after_a_cut_the_watch_resumes_with_all_that_was_missed,
    b06_compaction_is_one_resync => discovery::rule_01_a_compaction_ends_in_one_resync,
    b01_a_lost_lease_is_got_back => leases::rule_02_a_lost_lease_is_got_back_with_its_keys,
    b01_a_connection_that_was_away_registers_again
        => leases::rule_02_a_connection_that_was_away_puts_its_keys_again,
    discovery_rule_02_later_life => leases::rule_02_a_lease_that_comes_back_leaves_a_later_life_alone,
    discovery_rule_04 => discovery::rule_04_clusters_never_see_each_other,
    discovery_rule_06_end => leases::rule_06_the_end_of_a_lease_takes_its_keys_and_no_others,
    discovery_rule_06_foreign => leases::rule_06_a_lease_is_good_only_where_it_was_granted,
    discovery_rule_07 => discovery::rule_07_revisions_rise_and_tell_lives_apart,
    discovery_rule_08 => discovery::rule_08_lists_are_sorted_and_prefixes_are_bytes,
    discovery_rule_09 => discovery::rule_09_what_cannot_be_stored_is_refused,
    discovery_rule_10_calls => discovery::rule_10_while_cut_calls_fail_and_nothing_is_lost,
    discovery_rule_17 => discovery::rule_17_a_put_that_expects_something_changes_nothing_else,
    discovery_rule_10_dropped_lease => leases::rule_10_a_lease_dropped_while_cut_stays_gone,
}

conforms! { Bus:
    bus_rule_04 => bus::rule_04_clusters_never_hear_each_other,
    bus_rule_11 => bus::rule_11_a_subscription_is_in_force_when_it_returns,
    bus_rule_12 => bus::rule_12_every_matching_subscription_gets_every_message,
    bus_rule_13 => bus::rule_13_a_slow_subscriber_is_told_what_it_lost,
    bus_rule_14_answer => requests::rule_14_the_first_answer_ends_a_request,
    bus_rule_14_no_answer => requests::rule_14_a_request_without_answer_ends_typed,
    bus_rule_14_late => requests::rule_14_a_late_answer_goes_nowhere,
    bus_rule_14_many => requests::rule_14_answers_find_their_requests,
    bus_rule_15 => bus::rule_15_what_cannot_be_sent_is_refused,
    bus_rule_16 => requests::rule_16_while_cut_calls_fail_and_subscriptions_resume,
    bus_rule_16_under_way => requests::rule_16_a_request_under_way_when_the_connection_goes_ends,
    bus_rule_18 => bus::rule_18_headers_travel_with_their_message,
}

#[tokio::test]
async fn b15_in_500_trials_a_delete_during_a_cut_is_always_in_the_resync() {
    let store = MemoryStore::new();
    let cluster = ClusterName::from("b15");
    let (registry, router) = (store.connect(&cluster), store.connect(&cluster));
    let mut watch = router.watch("workers/").await.unwrap();
    let mut seen = BTreeSet::new();
    for trial in 0..500_u32 {
        for worker in 0..3 {
            registry.put(&format!("workers/{worker}"), Bytes::new(), None).await.unwrap();
        }
        router.set_reachable(false);
        let removed = format!("workers/{}", trial % 3);
        registry.delete(&removed).await.unwrap();
        router.set_reachable(true);
        while let Some(event) = watch.try_next() {
            match event {
                WatchEvent::Resync(snapshot) => {
                    seen = snapshot.entries.into_iter().map(|entry| entry.key).collect();
                }
                WatchEvent::Put(entry) => {
                    seen.insert(entry.key);
                }
                WatchEvent::Delete { key, .. } => {
                    seen.remove(&key);
                }
            }
        }
        assert!(seen.len() == 2 && !seen.contains(&removed), "trial {trial}: {seen:?}");
    }
}

#[tokio::test]
async fn a_process_that_vanishes_takes_its_records_and_returns_with_them() {
    let cluster = MemoryCluster::new("c");
    let (dying, witness) = (cluster.connect(), cluster.runtime());
    let runtime = dying.runtime();
    let lease = runtime.discovery().grant(std::time::Duration::from_secs(5)).await.unwrap();
    runtime.discovery().put("replicas/1", Bytes::new(), Some(&lease)).await.unwrap();
    let listed = async || witness.discovery().list("replicas/").await.unwrap().entries.len();
    assert_eq!(listed().await, 1);
    dying.vanish();
    assert_eq!(listed().await, 0);
    assert!(runtime.bus().publish("s", Bytes::new()).await.is_err());
    dying.set_reachable(true);
    assert_eq!(listed().await, 1);
}

#[tokio::test]
async fn watches_and_subscriptions_end_with_their_connection() {
    let (store, bus, name) = (MemoryStore::new(), MemoryBus::new(), ClusterName::from("c"));
    let (discovery, events) = (store.connect(&name), bus.connect(&name));
    let mut watch = discovery.watch("").await.unwrap();
    let mut subscription = events.subscribe(">").await.unwrap();
    let lease = discovery.grant(std::time::Duration::from_secs(5)).await.unwrap();
    discovery.put("k", Bytes::new(), Some(&lease)).await.unwrap();
    drop((discovery, events));
    assert!(subscription.next().await.is_none());
    assert!(matches!(watch.next().await, Some(WatchEvent::Resync(_))));
    assert!(matches!(watch.next().await, Some(WatchEvent::Put(_))));
    // The lease still holds the connection; with it both go.
    drop(lease);
    assert!(matches!(watch.next().await, Some(WatchEvent::Delete { .. })));
    assert!(watch.next().await.is_none());
    assert!(store.connect(&name).list("").await.unwrap().entries.is_empty());
}

/// What one subscriber hears of numbered messages under faults.
async fn heard(faults: BusFaults, seed: u64) -> Vec<u32> {
    let bus = MemoryBus::new();
    let connection = bus.connect(&ClusterName::from("c"));
    let mut subscription = connection.subscribe("s").await.unwrap();
    bus.set_faults(faults, seed);
    for number in 0..1_000_u32 {
        connection.publish("s", Bytes::copy_from_slice(&number.to_le_bytes())).await.unwrap();
    }
    bus.deliver_held();
    let mut heard = Vec::new();
    while let Some(message) = subscription.try_next() {
        heard.push(u32::from_le_bytes(message.payload.as_ref().try_into().unwrap()));
    }
    heard
}

#[tokio::test]
async fn faults_lose_repeat_and_reorder_and_do_it_again_with_the_same_seed() {
    let all: Vec<u32> = (0..1_000).collect();
    assert_eq!(heard(BusFaults::default(), 1).await, all);

    let lossy = heard(BusFaults { lose: 0.2, ..BusFaults::default() }, 1).await;
    assert!(lossy.len() < 1_000 && lossy.is_sorted());

    let repeating = heard(BusFaults { repeat: 0.2, ..BusFaults::default() }, 1).await;
    let mut counts = BTreeMap::new();
    repeating.iter().for_each(|number| *counts.entry(*number).or_insert(0) += 1);
    assert!(
        counts.len() == 1_000
            && counts.values().any(|&count| count == 2)
            && counts.values().all(|&count| count <= 2)
    );

    let mut reordered = heard(BusFaults { reorder: 0.2, span: 5, ..BusFaults::default() }, 1).await;
    assert!(!reordered.is_sorted());
    reordered.sort_unstable();
    assert_eq!(reordered, all, "what is overtaken still comes");

    let everything = BusFaults { lose: 0.1, repeat: 0.1, delay: 0.1, reorder: 0.1, span: 3 };
    assert_eq!(heard(everything, 9).await, heard(everything, 9).await);
    assert_ne!(heard(everything, 9).await, heard(everything, 10).await);
}

#[tokio::test]
async fn a_stalled_way_delivers_late_and_in_order() {
    let bus = MemoryBus::new();
    let connection = bus.connect(&ClusterName::from("c"));
    let mut subscription = connection.subscribe("s").await.unwrap();
    bus.set_faults(BusFaults { delay: 0.2, span: 5, ..BusFaults::default() }, 1);
    let (mut heard, mut late) = (Vec::new(), 0);
    for number in 0..1_000_u32 {
        connection.publish("s", Bytes::copy_from_slice(&number.to_le_bytes())).await.unwrap();
        while let Some(message) = subscription.try_next() {
            heard.push(u32::from_le_bytes(message.payload.as_ref().try_into().unwrap()));
        }
        late += usize::from(heard.len() <= number as usize);
        assert!(heard.len() + 6 > number as usize, "later than the span");
    }
    assert!(late > 100, "{late}");
    bus.deliver_held();
    while let Some(message) = subscription.try_next() {
        heard.push(u32::from_le_bytes(message.payload.as_ref().try_into().unwrap()));
    }
    assert_eq!(heard, (0..1_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_fault_meets_one_receiver_and_not_the_other() {
    let bus = MemoryBus::new();
    let connections = [(); 2].map(|()| bus.connect(&ClusterName::from("c")));
    let mut subscriptions = Vec::new();
    for connection in &connections {
        subscriptions.push(connection.subscribe("s").await.unwrap());
    }
    bus.set_faults(BusFaults { lose: 0.5, ..BusFaults::default() }, 3);
    let mut outcomes = BTreeSet::new();
    for _ in 0..100 {
        connections[0].publish("s", Bytes::new()).await.unwrap();
        outcomes.insert([subscriptions[0].try_next().is_some(), subscriptions[1].try_next().is_some()]);
    }
    assert_eq!(outcomes.len(), 4, "{outcomes:?}");
}

#[tokio::test]
async fn a_blocked_way_is_blocked_in_one_direction_and_for_answers_too() {
    const SHORT: std::time::Duration = std::time::Duration::from_millis(1);
    const LONG: std::time::Duration = std::time::Duration::from_secs(30);
    let bus = MemoryBus::new();
    let [one, two] = [(); 2].map(|()| bus.connect(&ClusterName::from("c")));
    let (mut to_one, mut to_two) = (one.subscribe(">").await.unwrap(), two.subscribe(">").await.unwrap());
    bus.set_blocked(&one, &two, true);
    one.publish("s", Bytes::new()).await.unwrap();
    two.publish("t", Bytes::new()).await.unwrap();
    assert_eq!(to_two.try_next().map(|message| message.subject), Some("t".to_owned()));
    assert_eq!(to_one.try_next().map(|message| message.subject), Some("s".to_owned()));
    assert_eq!(to_one.try_next().map(|message| message.subject), Some("t".to_owned()));

    // The question of `two` arrives and the answer does not; the question of `one` does not even arrive.
    drop((to_one, to_two));
    let (mut to_one, mut to_two) =
        (one.subscribe("ask.1").await.unwrap(), two.subscribe("ask.2").await.unwrap());
    let answering = async { to_one.next().await.unwrap().respond(Bytes::new()).await };
    let (unanswered, answered) = tokio::join!(two.request("ask.1", Bytes::new(), SHORT), answering);
    assert!(matches!(unanswered, Err(switchtower_cluster::BusError::Deadline { .. })) && answered.is_ok());
    let unheard = one.request("ask.2", Bytes::new(), SHORT).await;
    assert!(matches!(unheard, Err(switchtower_cluster::BusError::Deadline { .. })));
    assert!(to_two.try_next().is_none());

    bus.set_blocked(&one, &two, false);
    let answering = async { to_one.next().await.unwrap().respond(Bytes::new()).await };
    let (answer, answered) = tokio::join!(two.request("ask.1", Bytes::new(), LONG), answering);
    assert!(answer.is_ok() && answered.is_ok());
}

#[tokio::test]
async fn a_lost_answer_ends_at_the_deadline() {
    let bus = MemoryBus::new();
    let connection = bus.connect(&ClusterName::from("c"));
    let mut questions = connection.subscribe("s").await.unwrap();
    let asked = connection.request("s", Bytes::new(), std::time::Duration::from_millis(1));
    let answering = async {
        let question = questions.next().await.unwrap();
        bus.set_faults(BusFaults { lose: 1.0, ..BusFaults::default() }, 1);
        question.respond(Bytes::new()).await
    };
    let (asked, answered) = tokio::join!(asked, answering);
    assert!(matches!(asked, Err(switchtower_cluster::BusError::Deadline { .. })) && answered.is_ok());
}

#[tokio::test]
async fn a_dropped_subscription_answers_nothing_from_that_moment_on() {
    let connection = MemoryBus::new().connect(&ClusterName::from("c"));
    drop(connection.subscribe("s").await.unwrap());
    let asked = connection.request("s", Bytes::new(), std::time::Duration::MAX).await;
    assert!(matches!(asked, Err(switchtower_cluster::BusError::NoResponders { .. })));
}

#[tokio::test]
async fn a_lost_question_ends_at_its_deadline() {
    let bus = MemoryBus::new();
    let connection = bus.connect(&ClusterName::from("c"));
    let mut questions = connection.subscribe("s").await.unwrap();
    bus.set_faults(BusFaults { lose: 1.0, ..BusFaults::default() }, 1);
    let asked = connection.request("s", Bytes::new(), std::time::Duration::from_millis(1)).await;
    assert!(matches!(asked, Err(switchtower_cluster::BusError::Deadline { .. })));
    assert!(questions.try_next().is_none());
}
