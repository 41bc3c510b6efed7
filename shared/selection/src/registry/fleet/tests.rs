//! Records in, rows out.

use super::*;
use switchtower_cluster::{Revision, Snapshot};

fn entry(worker: u64, revision: u64, fields: &str) -> Entry {
    let value = format!(
        r#"{{"version":1,"worker_id":{worker},"incarnation":{worker}0,"endpoint":"http://127.0.0.1:1","model":"m"{fields}}}"#
    );
    raw(&format!("workers/{worker}"), revision, &value)
}

fn raw(key: &str, revision: u64, value: &str) -> Entry {
    Entry {
        key: key.to_owned(),
        value: value.to_owned().into(),
        create_revision: Revision(revision),
        revision: Revision(revision),
    }
}

const B16: &str = r#","block_size":16"#;

fn fleet(entries: Vec<Entry>) -> Fleet {
    let mut fleet = Fleet::default();
    fleet.workers(resync(entries));
    fleet
}

fn resync(entries: Vec<Entry>) -> WatchEvent {
    WatchEvent::Resync(Snapshot { entries, revision: Revision(99) })
}

fn deleted(key: &str) -> WatchEvent {
    WatchEvent::Delete { key: key.into(), revision: Revision(100) }
}

impl Fleet {
    fn workers(&mut self, event: WatchEvent) {
        self.apply(FeedEvent { source: Source::Workers, event });
    }

    fn drains(&mut self, event: WatchEvent) {
        self.apply(FeedEvent { source: Source::Drains, event });
    }

    fn claims(&mut self, event: WatchEvent) {
        self.apply(FeedEvent { source: Source::Claims, event });
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.wanted().refused.iter().map(|refused| refused.kind).collect()
    }
}

fn rows_of(fleet: &Fleet) -> Vec<String> {
    let wanted = fleet.wanted();
    wanted.partitions.values().flat_map(|partition| &partition.rows).map(|row| row.row.to_string()).collect()
}

#[test]
fn records_become_rows_and_resync_replaces_all() {
    let mut fleet = fleet(vec![entry(1, 1, B16), entry(2, 2, r#","block_size":16,"ranks":2"#)]);
    assert_eq!(rows_of(&fleet), ["1/0", "2/0", "2/1"]);
    fleet.workers(deleted("workers/2"));
    fleet.workers(WatchEvent::Put(entry(3, 4, B16)));
    assert_eq!(rows_of(&fleet), ["1/0", "3/0"]);
    fleet.workers(resync(vec![entry(4, 5, B16)]));
    assert_eq!(rows_of(&fleet), ["4/0"], "b15: what a resync does not name is gone");
}

#[test]
fn b09_a_changed_value_under_the_same_key_counts() {
    let mut fleet = fleet(vec![entry(1, 1, B16)]);
    fleet.workers(WatchEvent::Put(entry(1, 2, r#","block_size":16,"draining":true"#)));
    assert!(fleet.wanted().partitions.values().all(|partition| partition.rows[0].draining));
}

#[test]
fn b118_one_block_size_of_a_partition_holds_and_nobody_else_is_harmed() {
    let fleet = fleet(vec![entry(1, 1, r#","block_size":32"#), entry(2, 3, B16), entry(3, 5, B16)]);
    assert_eq!(rows_of(&fleet), ["2/0", "3/0"], "most workers decide, even if the stray one came first");
    let refused = fleet.wanted().refused;
    assert_eq!((refused[0].key.as_str(), refused[0].kind), ("workers/1", "block_size"));
    assert!(refused[0].reason.contains("start it with 16"), "{}", refused[0].reason);
}

#[test]
fn b118_where_as_many_want_either_block_size_the_one_that_came_first_holds() {
    let mut fleet = fleet(vec![entry(1, 9, r#","block_size":32"#), entry(2, 3, B16)]);
    assert_eq!(rows_of(&fleet), ["2/0"]);
    fleet.workers(deleted("workers/2"));
    assert_eq!(rows_of(&fleet), ["1/0"]);
    assert!(fleet.kinds().is_empty());
}

#[test]
fn a_record_that_does_not_parse_is_refused_with_a_reason() {
    let mut fleet = fleet(vec![raw("workers/9", 1, "{"), entry(1, 2, B16)]);
    assert_eq!(rows_of(&fleet), ["1/0"]);
    assert_eq!(fleet.wanted().refused.len(), 1);
    fleet.workers(WatchEvent::Put(entry(9, 3, B16)));
    assert!(fleet.wanted().refused.is_empty());
    assert_eq!(rows_of(&fleet), ["1/0", "9/0"]);
}

#[test]
fn an_operators_drain_holds_for_the_rows_and_is_shown_apart_from_the_workers_own() {
    let mut fleet = fleet(vec![entry(1, 1, B16), entry(2, 2, r#","block_size":16,"draining":true"#)]);
    let setting = r#"{"version":1,"worker_id":1,"reason":"a new kernel","since_ms":5}"#;
    fleet.drains(resync(vec![raw("settings/drain/1", 3, setting)]));
    let wanted = fleet.wanted();
    assert!(wanted.partitions.values().all(|partition| partition.rows.iter().all(|row| row.draining)));
    let shown: Vec<_> = wanted.workers.iter().map(|worker| (worker.draining, worker.drained)).collect();
    assert_eq!(shown, [(false, true), (true, false)]);
    assert_eq!(wanted.workers[0].drain_reason.as_deref(), Some("a new kernel"));
    fleet.drains(deleted("settings/drain/1"));
    assert!(!fleet.wanted().workers[0].drained);
}

#[test]
fn a_drain_that_does_not_parse_is_refused_and_drains_nobody() {
    let mut fleet = fleet(vec![entry(1, 1, B16)]);
    fleet.drains(resync(vec![
        raw("settings/drain/1", 2, "yes"),
        raw("settings/drain/7", 3, r#"{"version":1,"worker_id":1}"#),
        raw("settings/drain/8", 4, r#"{"version":9,"worker_id":8}"#),
    ]));
    assert_eq!(fleet.kinds(), ["parse", "key", "version"]);
    assert!(fleet.kinds().iter().all(|kind| RefusedRecord::KINDS.contains(kind)));
    assert_eq!(fleet.wanted().workers.iter().filter(|worker| worker.drained).count(), 0);
}

#[test]
fn b118_who_claims_the_id_of_another_is_shown_and_takes_no_part() {
    let mut fleet = fleet(vec![entry(1, 1, B16)]);
    let claim =
        RefusedClaim::new(WorkerId(1), switchtower_ids::Incarnation(0xab), "http://127.0.0.1:2", "taken");
    let json = String::from_utf8(claim.to_json().unwrap()).unwrap();
    fleet.claims(resync(vec![raw(&claim.key(), 2, &json)]));
    assert_eq!((rows_of(&fleet), fleet.kinds()), (vec!["1/0".to_owned()], vec!["id_taken"]));
    assert_eq!(fleet.wanted().refused[0].key, "workers-refused/1/00000000000000ab");
    fleet.claims(resync(Vec::new()));
    assert!(fleet.kinds().is_empty());
    assert_eq!(rows_of(&fleet), ["1/0"], "a resync of one source leaves the others alone");
}

#[test]
fn it_is_synced_when_every_source_has_been_seen() {
    let mut fleet = fleet(Vec::new());
    assert!(!fleet.is_synced());
    fleet.drains(resync(Vec::new()));
    assert!(!fleet.is_synced());
    fleet.claims(resync(Vec::new()));
    assert!(fleet.is_synced());
}
