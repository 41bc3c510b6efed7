//! Every rule of the port's contract, on real servers.

use crate::rig::{Rig, on_every_version};
use switchtower_cluster::conformance;

/// One test per rule: `name => suite::function`.
macro_rules! conforms {
    ($($name:ident => $suite:ident :: $rule:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $name() {
            on_every_version(async |etcd| conformance::$suite::$rule(&Rig::from(etcd)).await).await;
        }
    )*};
}

conforms! {
    rule_01_start => discovery::rule_01_a_watch_begins_with_the_state_and_misses_nothing,
    rule_01_slow_reader => discovery::rule_01_a_reader_that_falls_far_behind_ends_where_the_store_is,
    b05_b15_a_watch_that_was_cut_learns_all_it_missed
        => discovery::rule_01_after_a_cut_the_watch_resumes_with_all_that_was_missed,
    b06_a_compaction_while_cut_is_one_resync => discovery::rule_01_a_compaction_ends_in_one_resync,
    b01_a_lost_lease_is_got_back => leases::rule_02_a_lost_lease_is_got_back_with_its_keys,
    b01_a_connection_that_was_away_registers_again
        => leases::rule_02_a_connection_that_was_away_puts_its_keys_again,
    rule_02_later_life => leases::rule_02_a_lease_that_comes_back_leaves_a_later_life_alone,
    rule_04 => discovery::rule_04_clusters_never_see_each_other,
    rule_06_end => leases::rule_06_the_end_of_a_lease_takes_its_keys_and_no_others,
    rule_06_foreign => leases::rule_06_a_lease_is_good_only_where_it_was_granted,
    rule_07 => discovery::rule_07_revisions_rise_and_tell_lives_apart,
    rule_08 => discovery::rule_08_lists_are_sorted_and_prefixes_are_bytes,
    rule_09 => discovery::rule_09_what_cannot_be_stored_is_refused,
    rule_10_calls => discovery::rule_10_while_cut_calls_fail_and_nothing_is_lost,
    rule_10_dropped_lease => leases::rule_10_a_lease_dropped_while_cut_stays_gone,
    rule_17 => discovery::rule_17_a_put_that_expects_something_changes_nothing_else,
}
