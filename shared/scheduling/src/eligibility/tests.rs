//! Each hard filter alone, and the outcome when none is left (design invariant 3).

use super::*;
use crate::{
    RowReport,
    book::{Booked, Entry, Log, kept_blocks},
    testing::{info, key, prompt, tainted},
};
use switchtower_ids::{Incarnation, Rank, Row};

struct Setup {
    table: WorkerTable,
    book: Book,
    overload: OverloadThresholds,
}

impl Setup {
    fn new(rows: Vec<RowInfo>) -> Self {
        let table = WorkerTable::replace(rows, &WorkerTable::default());
        let mut book = Book::default();
        book.set_lives(table.rows().iter().map(|info| (info.row, info.life())));
        Self { table, book, overload: OverloadThresholds::default() }
    }

    /// Books `tokens` of prefill and as many blocks on worker `worker`.
    fn booked(mut self, worker: u64, tokens: u64) -> Self {
        let entry = Log::default().append(Entry::Booked(Booked {
            key: key(1),
            attempt: 1,
            row: Row::new(worker, 0),
            life: info(worker, 0).life(),
            prefill_tokens: tokens,
            blocks: kept_blocks(&prompt(1, tokens)).into(),
            expected_output_tokens: None,
            alias: None,
        }));
        self.book.apply(0, &entry).unwrap();
        self
    }

    fn eligible(&self, constraints: &Constraints) -> Result<Vec<String>, Rejection> {
        let rows = self.table.rows();
        let columns: Vec<_> = rows.iter().filter_map(|info| self.book.column(info.row)).collect();
        let fleet =
            Fleet { table: &self.table, columns: &columns, book: &self.book, overload: self.overload };
        let (mut eligible, mut sorted) = (Vec::new(), constraints.clone());
        sorted.sort();
        eligible_rows(fleet, &sorted, &mut eligible)?;
        for (index, info) in rows.iter().enumerate() {
            assert_eq!(fleet.accepts(&sorted, index), eligible.contains(&index), "{}", info.row);
        }
        Ok(eligible.into_iter().map(|index| rows[index].row.to_string()).collect())
    }
}

fn pin(worker: u64, rank: Option<u32>) -> Constraints {
    let pin = Pin { worker: WorkerId(worker), rank: rank.map(Rank) };
    Constraints { pin: Some(pin), ..Constraints::default() }
}

fn nothing_eligible(result: &Result<Vec<String>, Rejection>) -> Exclusions {
    match result {
        Err(Rejection::NothingEligible(exclusions)) => *exclusions,
        other => panic!("{other:?}"),
    }
}

#[test]
fn invariant_3_each_filter_excludes_what_it_should() {
    let setup =
        Setup::new(vec![info(1, 0), info(1, 1), tainted(2, &["gpu=a", "zone=x"]), tainted(3, &["gpu=a"])]);
    let all = setup.eligible(&Constraints::default()).unwrap();
    assert_eq!(all, ["1/0", "1/1", "2/0", "3/0"]);
    let allowed = Constraints { allowed_workers: vec![WorkerId(3), WorkerId(1)], ..Constraints::default() };
    assert_eq!(setup.eligible(&allowed).unwrap(), ["1/0", "1/1", "3/0"]);
    assert_eq!(setup.eligible(&pin(1, None)).unwrap(), ["1/0", "1/1"]);
    assert_eq!(setup.eligible(&pin(1, Some(1))).unwrap(), ["1/1"]);
    let ranks = Constraints { ranks: Some(1..=3), ..Constraints::default() };
    assert_eq!(setup.eligible(&ranks).unwrap(), ["1/1"]);
    let taints =
        Constraints { required_taints: vec!["gpu=a".into(), "zone=x".into()], ..Constraints::default() };
    assert_eq!(setup.eligible(&taints).unwrap(), ["2/0"]);
    let failed = Constraints { failed: vec![(WorkerId(1), Incarnation(1))], ..Constraints::default() };
    assert_eq!(setup.eligible(&failed).unwrap(), ["2/0", "3/0"]);
    let other_life = Constraints { failed: vec![(WorkerId(1), Incarnation(9))], ..Constraints::default() };
    assert_eq!(setup.eligible(&other_life).unwrap().len(), 4, "a restarted worker is another one");
}

#[test]
fn a_draining_worker_takes_nothing_new() {
    let setup = Setup::new(vec![info(1, 0), RowInfo { draining: true, ..info(2, 0) }]);
    assert_eq!(setup.eligible(&Constraints::default()).unwrap(), ["1/0"]);
    assert_eq!(nothing_eligible(&setup.eligible(&pin(2, None))).draining, 1);
}

#[test]
fn an_impossible_pin_is_the_callers_mistake() {
    let setup = Setup::new(vec![info(1, 0)]);
    let with = |constraints: Constraints| setup.eligible(&constraints).unwrap_err();
    let contradicting = Constraints { allowed_workers: vec![WorkerId(2)], ..pin(1, None) };
    let out_of_bounds = Constraints { ranks: Some(1..=1), ..pin(1, Some(0)) };
    for constraints in [pin(7, None), pin(1, Some(3)), contradicting, out_of_bounds] {
        assert!(matches!(with(constraints.clone()), Rejection::ImpossiblePin { .. }), "{constraints:?}");
    }
}

#[test]
fn overload_by_booked_prefill_tokens() {
    let mut setup = Setup::new(vec![info(1, 0), info(2, 0)]).booked(1, 500);
    setup.overload.prefill_tokens = Some(499);
    assert_eq!(setup.eligible(&Constraints::default()).unwrap(), ["2/0"]);
    assert_eq!(setup.eligible(&pin(1, None)), Err(Rejection::PinnedOverloaded(Row::new(1, 0))));
    let only_one = Constraints { allowed_workers: vec![WorkerId(1)], ..Constraints::default() };
    assert_eq!(setup.eligible(&only_one), Err(Rejection::AllOverloaded { overloaded: 1 }));
    setup.overload.prefill_tokens = Some(500);
    assert_eq!(setup.eligible(&Constraints::default()).unwrap().len(), 2, "at the limit is not over it");
}

#[test]
fn overload_by_blocks_of_the_book_or_of_the_workers_report_and_unknown_is_neither() {
    let unknown = RowInfo { total_blocks: None, ..info(3, 0) };
    let mut setup = Setup::new(vec![info(1, 0), info(2, 0), unknown]).booked(1, 901);
    setup.overload.blocks_fraction = Some(0.9);
    assert_eq!(setup.eligible(&Constraints::default()).unwrap(), ["2/0", "3/0"]);
    let full = RowReport { blocks_used: 95, blocks_total: 100 };
    setup.table.report(0, Row::new(3, 0), Incarnation(1), full);
    assert_eq!(setup.eligible(&Constraints::default()).unwrap(), ["2/0"]);
    setup.table.report(0, Row::new(3, 0), Incarnation(1), RowReport { blocks_used: 0, blocks_total: 0 });
    assert_eq!(
        setup.eligible(&Constraints::default()).unwrap(),
        ["2/0", "3/0"],
        "a report of 0 blocks says nothing"
    );
}

#[test]
fn an_overload_matters_more_than_other_exclusions_because_waiting_helps() {
    let mut setup = Setup::new(vec![info(1, 0), RowInfo { draining: true, ..info(2, 0) }]).booked(1, 10);
    setup.overload.prefill_tokens = Some(0);
    assert_eq!(setup.eligible(&Constraints::default()), Err(Rejection::AllOverloaded { overloaded: 1 }));
}

#[test]
fn an_empty_fleet_is_nothing_eligible() {
    let setup = Setup::new(Vec::new());
    assert_eq!(nothing_eligible(&setup.eligible(&Constraints::default())), Exclusions::default());
}
