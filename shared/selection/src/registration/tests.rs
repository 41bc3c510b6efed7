//! Who stands at a worker's key, whatever happens to it.

use super::{judge::Found, judge::judge, *};
use crate::records::{CLAIMS, REPLICAS, RefusedClaim, ReplicaRecord};
use bytes::Bytes;
use switchtower_cluster::{
    Discovery, Entry, Revision,
    memory::{MemoryCluster, MemoryConnection},
};
use switchtower_ids::{Incarnation, ReplicaId};

const TTL: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);
const KEY: &str = "workers/7";

fn record(incarnation: u64, port: u16) -> WorkerRecord {
    let json = format!(
        r#"{{"version":1,"worker_id":7,"incarnation":{incarnation},"endpoint":"http://127.0.0.1:{port}","model":"m","block_size":16}}"#
    );
    WorkerRecord::parse(KEY, json.as_bytes()).unwrap()
}

/// One process.
struct Process {
    connection: MemoryConnection,
    runtime: DistributedRuntime,
}

impl Process {
    fn of(cluster: &MemoryCluster) -> Self {
        let connection = cluster.connect();
        Self { runtime: connection.runtime(), connection }
    }

    fn register(&self, record: WorkerRecord) -> Registration {
        Registration::start(&self.runtime, record, TTL, self.runtime.tasks())
    }

    fn discovery(&self) -> &dyn Discovery {
        &**self.runtime.discovery()
    }

    async fn standing(&self) -> Option<u64> {
        let entry = self.discovery().get(KEY).await.unwrap()?;
        Some(WorkerRecord::parse(KEY, &entry.value).unwrap().incarnation.0)
    }

    async fn claims(&self) -> Vec<RefusedClaim> {
        let found = self.discovery().list(CLAIMS).await.unwrap().entries;
        found.iter().map(|entry| RefusedClaim::parse(&entry.key, &entry.value).unwrap()).collect()
    }

    async fn until_standing(&self, incarnation: Option<u64>) {
        eventually(async || self.standing().await == incarnation).await;
    }
}

async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it never became so");
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it never ended")
}

#[test]
fn what_stands_at_a_key_is_judged_by_life_and_endpoint() {
    let entry = |record: &WorkerRecord| Entry {
        key: KEY.into(),
        value: record.to_json().unwrap().into(),
        create_revision: Revision(1),
        revision: Revision(5),
    };
    let own = record(1, 10);
    let at = Some(Revision(5));
    assert_eq!(judge(None, &own, true), Found::Free(None));
    assert_eq!(judge(Some(&entry(&own)), &own, true), Found::Own(Revision(5)));
    let changed = WorkerRecord { draining: true, ..own.clone() };
    assert_eq!(judge(Some(&entry(&own)), &changed, true), Found::Free(at));
    let restarted = record(2, 10);
    assert_eq!(judge(Some(&entry(&own)), &restarted, false), Found::Free(at), "a former life's");
    assert_eq!(judge(Some(&entry(&restarted)), &own, true), Found::Replaced, "a later life's");
    for was_registered in [false, true] {
        let other = judge(Some(&entry(&record(3, 11))), &own, was_registered);
        assert!(matches!(other, Found::Taken { reason } if reason.contains("http://127.0.0.1:11")));
    }
    let garbage = Entry { value: Bytes::from_static(b"{"), ..entry(&own) };
    assert!(matches!(judge(Some(&garbage), &own, false), Found::Taken { reason } if reason.contains(KEY)));
}

#[tokio::test]
async fn book_rule_10_a_worker_that_claims_a_taken_id_waits_and_shows_it() {
    let cluster = MemoryCluster::new("test");
    let (first, second) = (Process::of(&cluster), Process::of(&cluster));
    let one = first.register(record(1, 10));
    assert_eq!(within(one.settled()).await, RegistrationState::Registered);
    let two = second.register(record(2, 20));
    let refused = within(two.settled()).await;
    assert!(
        matches!(&refused, RegistrationState::Refused { reason } if reason.contains("127.0.0.1:10")),
        "{refused}"
    );
    assert_eq!(first.standing().await, Some(1), "the older one stays");
    let claims = first.claims().await;
    assert_eq!((claims.len(), claims[0].incarnation), (1, Incarnation(2)));
    assert!(claims[0].reason.contains("127.0.0.1:10"));

    first.connection.vanish();
    assert_eq!(within(two.registered()).await, RegistrationState::Registered);
    assert_eq!(second.standing().await, Some(2));
    assert_eq!(second.claims().await, []);

    // The first one was only away. Its id belongs to another now.
    first.connection.set_reachable(true);
    eventually(async || matches!(one.state(), RegistrationState::Refused { .. })).await;
    assert_eq!(second.standing().await, Some(2));
    drop(two);
    assert_eq!(within(one.registered()).await, RegistrationState::Registered);
    assert_eq!(first.standing().await, Some(1));
}

#[tokio::test]
async fn of_many_that_claim_one_id_at_once_one_has_it() {
    let cluster = MemoryCluster::new("test");
    let processes: Vec<_> = (1..=8).map(|_| Process::of(&cluster)).collect();
    let mut claimants: Vec<_> = processes
        .iter()
        .zip(1_u16..)
        .map(|(process, number)| process.register(record(u64::from(number), number)))
        .collect();
    for left in (1..=8).rev() {
        let settled = |state: &RegistrationState| {
            matches!(state, RegistrationState::Registered | RegistrationState::Refused { .. })
        };
        eventually(async || claimants.iter().all(|claimant| settled(&claimant.state()))).await;
        eventually(async || claimants.iter().any(|one| one.state() == RegistrationState::Registered)).await;
        let has = |claimant: &Registration| claimant.state() == RegistrationState::Registered;
        assert_eq!(claimants.iter().filter(|claimant| has(claimant)).count(), 1);
        eventually(async || processes[0].claims().await.len() == left - 1).await;
        let at = claimants.iter().position(has).unwrap();
        within(claimants.remove(at).end()).await;
    }
    assert_eq!(processes[0].standing().await, None);
}

#[tokio::test]
async fn b02_a_lease_that_is_lost_and_a_record_that_is_deleted_come_back() {
    let cluster = MemoryCluster::new("test");
    let (process, other) = (Process::of(&cluster), Process::of(&cluster));
    let registration = process.register(record(1, 10));
    within(registration.registered()).await;
    process.connection.discovery.expire_leases();
    other.until_standing(Some(1)).await;
    other.discovery().delete(KEY).await.unwrap();
    other.until_standing(Some(1)).await;
    process.connection.vanish();
    assert_eq!(other.standing().await, None);
    process.connection.set_reachable(true);
    other.until_standing(Some(1)).await;
    within(registration.end()).await;
    assert_eq!(other.standing().await, None);
}

#[tokio::test]
async fn a_restart_at_the_same_endpoint_takes_over_and_the_former_life_is_over() {
    let cluster = MemoryCluster::new("test");
    let (former, later) = (Process::of(&cluster), Process::of(&cluster));
    let old = former.register(record(1, 10));
    within(old.registered()).await;
    let new = later.register(record(2, 10));
    within(new.registered()).await;
    assert_eq!(within(old.lost(Duration::ZERO)).await, RegistrationState::Replaced);
    within(old.end()).await;
    assert_eq!((later.standing().await, new.state()), (Some(2), RegistrationState::Registered));
}

#[tokio::test]
async fn a_record_changes_while_it_stands_and_a_drop_takes_it_back() {
    let cluster = MemoryCluster::new("test");
    let process = Process::of(&cluster);
    let registration = process.register(record(1, 10));
    within(registration.registered()).await;
    registration.update(WorkerRecord { draining: true, ..record(1, 10) });
    eventually(async || {
        let entry = process.discovery().get(KEY).await.unwrap().unwrap();
        WorkerRecord::parse(KEY, &entry.value).unwrap().draining
    })
    .await;
    drop(registration);
    process.until_standing(None).await;
}

#[tokio::test]
async fn b02_without_a_store_it_says_so_registers_when_there_is_one_and_gives_up_only_if_told_to() {
    let cluster = MemoryCluster::new("test");
    let process = Process::of(&cluster);
    process.connection.set_reachable(false);
    let registration = process.register(record(1, 10));
    let pending = within(registration.settled()).await;
    assert!(matches!(&pending, RegistrationState::Pending { reason } if !reason.is_empty()), "{pending}");
    let lost = within(registration.lost(Duration::from_millis(1))).await;
    assert!(matches!(lost, RegistrationState::Pending { .. }));
    process.connection.set_reachable(true);
    assert_eq!(within(registration.registered()).await, RegistrationState::Registered);
}

#[tokio::test]
async fn a_router_announces_itself_while_it_lives() {
    let cluster = MemoryCluster::new("test");
    let (process, other) = (Process::of(&cluster), Process::of(&cluster));
    process.connection.set_reachable(false);
    let mut record = ReplicaRecord::new(ReplicaId(process.runtime.replica()), 5, "1.2.3");
    record.admin = Some("http://127.0.0.1:9090".into());
    let announcement = announce(&process.runtime, &record, process.runtime.tasks()).unwrap();
    let listed = async || {
        let found = other.discovery().list(REPLICAS).await.unwrap().entries;
        found.iter().map(|entry| ReplicaRecord::parse(&entry.key, &entry.value).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, []);
    process.connection.set_reachable(true);
    within(announcement.announced()).await;
    assert_eq!(listed().await, [record]);
    within(announcement.end()).await;
    assert_eq!(listed().await, []);
}
