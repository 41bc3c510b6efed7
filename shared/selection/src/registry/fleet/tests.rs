//! Records in, rows out.

use super::*;
use switchtower_cluster::Revision;

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
    fleet.apply(WatchEvent::Resync(Snapshot { entries, revision: Revision(99) }));
    fleet
}

fn rows_of(fleet: &Fleet) -> Vec<String> {
    let wanted = fleet.wanted();
    wanted.partitions.values().flat_map(|partition| &partition.rows).map(|row| row.row.to_string()).collect()
}

#[test]
fn records_become_rows_and_resync_replaces_all() {
    let mut fleet = fleet(vec![entry(1, 1, B16), entry(2, 2, r#","block_size":16,"ranks":2"#)]);
    assert_eq!(rows_of(&fleet), ["1/0", "2/0", "2/1"]);
    fleet.apply(WatchEvent::Delete { key: "workers/2".into(), revision: Revision(3) });
    fleet.apply(WatchEvent::Put(entry(3, 4, B16)));
    assert_eq!(rows_of(&fleet), ["1/0", "3/0"]);
    fleet.apply(WatchEvent::Resync(Snapshot { entries: vec![entry(4, 5, B16)], revision: Revision(5) }));
    assert_eq!(rows_of(&fleet), ["4/0"], "b15: what a resync does not name is gone");
}

#[test]
fn b09_a_changed_value_under_the_same_key_counts() {
    let mut fleet = fleet(vec![entry(1, 1, B16)]);
    fleet.apply(WatchEvent::Put(entry(1, 2, r#","block_size":16,"draining":true"#)));
    assert!(fleet.wanted().partitions.values().all(|partition| partition.rows[0].draining));
}

#[test]
fn b118_the_first_block_size_of_a_partition_holds_and_nobody_else_is_harmed() {
    let fleet = fleet(vec![entry(1, 9, r#","block_size":32"#), entry(2, 3, B16), entry(3, 5, B16)]);
    assert_eq!(rows_of(&fleet), ["2/0", "3/0"]);
    let refused = fleet.wanted().refused;
    assert_eq!(refused[0].key, "workers/1");
    assert!(refused[0].reason.contains("start it with 16"), "{}", refused[0].reason);
}

#[test]
fn a_record_that_does_not_parse_is_refused_with_a_reason() {
    let mut fleet = fleet(vec![raw("workers/9", 1, "{"), entry(1, 2, B16)]);
    assert_eq!(rows_of(&fleet), ["1/0"]);
    assert_eq!(fleet.wanted().refused.len(), 1);
    fleet.apply(WatchEvent::Put(entry(9, 3, B16)));
    assert!(fleet.wanted().refused.is_empty());
    assert_eq!(rows_of(&fleet), ["1/0", "9/0"]);
}
