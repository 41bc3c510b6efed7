//! Random histories of several rows: the index accepts, holds and answers exactly what the naive model does.

use crate::model::Model;
use crate::world;
use proptest::prelude::*;
use switchtower_ids::{SequenceHash, Tier};
use switchtower_kv::event::{KvEvent, Snapshot, SnapshotRun};
use switchtower_kv::index::{IndexLimits, IndexStats, Overlap, PrefixIndex, RefusalReason, Refused, RowSlot};

const ROWS: u32 = 6;

#[derive(Clone, Debug)]
enum Step {
    Apply(u32, KvEvent),
    Drop(u32),
    /// Replace one row by what another one holds, with a flaw or without.
    Copy {
        from: u32,
        to: u32,
        flawed: bool,
    },
    DumpAndRestore,
}

fn step() -> impl Strategy<Value = Step> {
    let row = 0..ROWS;
    prop_oneof![
        40 => (row.clone(), world::event()).prop_map(|(row, event)| Step::Apply(row, event)),
        1 => row.clone().prop_map(Step::Drop),
        2 => (row.clone(), row, any::<bool>()).prop_map(|(from, to, flawed)| Step::Copy { from, to, flawed }),
        1 => Just(Step::DumpAndRestore),
    ]
}

/// What `row` holds, as a snapshot; flawed by a run after a block that nobody has.
fn snapshot_of(index: &PrefixIndex, row: u32, flawed: bool) -> Snapshot {
    let dump = index.dump().into_iter().find(|dump| dump.slot == RowSlot(row));
    let mut blocks = dump.map(|dump| dump.runs).unwrap_or_default();
    if flawed {
        let parent = Some(SequenceHash(77));
        blocks.push(SnapshotRun { tier: Tier::Device, parent, blocks: vec![] });
    }
    Snapshot { seq: 1, blocks }
}

fn run(step: Step, index: &mut PrefixIndex, model: &mut Model) {
    match step {
        Step::Apply(row, event) => {
            let accepted = index.apply(RowSlot(row), &event);
            assert_eq!(accepted.is_ok(), model.apply(row, &event).is_ok(), "{accepted:?} for {event:?}");
        }
        Step::Drop(row) => {
            index.drop_row(RowSlot(row));
            model.drop_row(row);
        }
        Step::Copy { from, to, flawed } => {
            let snapshot = snapshot_of(index, from, flawed);
            let replaced = index.replace(RowSlot(to), &snapshot);
            assert_eq!(replaced.is_err(), flawed);
            assert_eq!(model.replace(to, &snapshot.blocks).is_err(), flawed);
        }
        Step::DumpAndRestore => {
            let dump = index.dump();
            let mut restored = PrefixIndex::default();
            restored.apply(RowSlot(1), &device(None, [5])).unwrap();
            assert_eq!(restored.restore(&dump), []);
            *index = restored;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn the_index_equals_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let (mut index, mut model) = (PrefixIndex::default(), Model::default());
        for (at, step) in steps.into_iter().enumerate() {
            if let Step::Apply(row, event) = &step
                && world::is_lie(event)
                && model.clone().apply(*row, event).is_ok()
            {
                continue;
            }
            run(step, &mut index, &mut model);
            if at % 16 == 0 {
                model.assert_equals(&index, ROWS, world::queries());
            }
        }
        model.assert_equals(&index, ROWS, world::queries());
        for row in 0..ROWS {
            index.drop_row(RowSlot(row));
        }
        let IndexStats { rows, blocks, pairs, .. } = index.stats();
        prop_assert_eq!((rows, blocks, pairs), (0, 0, 0));
    }

    /// Queries that are no prompt mean nothing, but do no harm.
    #[test]
    fn any_query_is_safe(
        steps in prop::collection::vec(step(), 1..60),
        query in prop::collection::vec((0..world::BLOCKS + 2).prop_map(world::hash), 0..12),
    ) {
        let (mut index, mut model) = (PrefixIndex::default(), Model::default());
        for step in steps {
            run(step, &mut index, &mut model);
        }
        let mut overlap = Overlap::new();
        index.overlap(&query, &mut overlap);
        for slot in overlap.touched() {
            prop_assert!(overlap.blocks(*slot).total() as usize <= query.len());
        }
    }
}

fn device(parent: Option<u64>, blocks: impl IntoIterator<Item = u64>) -> KvEvent {
    let blocks = blocks.into_iter().map(SequenceHash).collect();
    KvEvent::Stored { tier: Tier::Device, parent: parent.map(SequenceHash), blocks }
}

#[test]
fn what_was_never_seen_is_answered_with_nothing() {
    let mut index = PrefixIndex::default();
    let mut overlap = Overlap::new();
    index.overlap(&[], &mut overlap);
    index.overlap(&[SequenceHash(1)], &mut overlap);
    index.drop_row(RowSlot(9));
    index.drop_row(RowSlot(u32::MAX));
    assert!(index.dump().is_empty() && overlap.touched().is_empty());
    assert_eq!((index.row_blocks(RowSlot(4)), overlap.blocks(RowSlot(u32::MAX)).total()), (0, 0));
    index.apply(RowSlot(3), &device(None, [1, 2])).unwrap();
    index.overlap(&[], &mut overlap);
    assert_eq!((overlap.touched(), overlap.device()), (&[][..], &[0, 0, 0, 0][..]));
}

#[test]
fn one_answer_is_used_for_many_queries() {
    let mut index = PrefixIndex::default();
    index.apply(RowSlot(0), &device(None, 1..=4)).unwrap();
    index.apply(RowSlot(2), &device(None, 1..=2)).unwrap();
    let mut overlap = Overlap::new();
    let query: Vec<_> = (1..=6).map(SequenceHash).collect();
    index.overlap(&query, &mut overlap);
    assert_eq!(overlap.device(), [4, 0, 2]);
    index.overlap(&query[..1], &mut overlap);
    assert_eq!(overlap.device(), [1, 0, 1]);
    index.overlap(&query[1..], &mut Overlap::new());
    index.overlap(&[SequenceHash(99)], &mut overlap);
    assert_eq!((overlap.device(), overlap.touched()), (&[0, 0, 0][..], &[][..]));
    overlap = Overlap::new();
    PrefixIndex::default().overlap(&query, &mut overlap);
    assert!(overlap.device().is_empty());
}

#[test]
fn limits_are_typed_and_counted() {
    let mut index = PrefixIndex::new(IndexLimits { rows: 2, blocks: 3 });
    index.apply(RowSlot(1), &device(None, [1, 2])).unwrap();
    assert_eq!(index.apply(RowSlot(1), &device(Some(2), [3, 4])), Err(Refused::Full { limit: 3 }));
    assert_eq!(
        index.apply(RowSlot(2), &device(None, [1])),
        Err(Refused::SlotOutOfRange { slot: 2, limit: 2 })
    );
    index.apply(RowSlot(0), &device(None, [1, 2, 3])).unwrap();
    let refused = index.stats().refused;
    assert_eq!((refused.events(RefusalReason::Full), refused.blocks(RefusalReason::Full)), (1, 2));
    assert_eq!(refused.events(RefusalReason::SlotOutOfRange), 1);
    assert_eq!(refused.events(RefusalReason::UnknownParent), 0);
}

#[test]
fn every_reason_to_refuse_is_told_apart() {
    let mut index = PrefixIndex::default();
    index.apply(RowSlot(0), &device(None, [1, 2, 3])).unwrap();
    let hash = SequenceHash;
    let removed = |block| KvEvent::Removed { tier: Tier::Device, blocks: vec![hash(block)] };
    let table = [
        (device(Some(9), [10]), Refused::UnknownParent { parent: hash(9) }),
        (device(None, [2]), Refused::ParentConflict { block: hash(2) }),
        (device(Some(3), [8, 1]), Refused::ParentConflict { block: hash(1) }),
        (device(Some(3), [8, 9, 8]), Refused::Repeated { block: hash(8) }),
        (removed(2), Refused::HasChildren { block: hash(2) }),
        (KvEvent::Unknown, Refused::UnknownKind),
    ];
    for (event, refused) in table {
        assert_eq!(index.apply(RowSlot(0), &event), Err(refused));
        assert_eq!(index.stats().refused.events(refused.reason()).min(1), 1);
        assert_eq!(
            (index.stats().blocks, index.row_blocks(RowSlot(0))),
            (3, 3),
            "{event:?} changed something"
        );
    }
    let other = index.apply(RowSlot(1), &device(Some(1), [2]));
    assert_eq!(other, Err(Refused::UnknownParent { parent: hash(1) }), "another row's block is no parent");
}

#[test]
fn wide_sharing_and_many_boundaries_are_answered_exactly() {
    let mut index = PrefixIndex::default();
    let rows = 300;
    for row in 0..rows {
        index.apply(RowSlot(row), &device(None, 1..=u64::from(1 + row % 130))).unwrap();
    }
    let query: Vec<_> = (1..=128).map(SequenceHash).collect();
    let mut overlap = Overlap::new();
    index.overlap(&query, &mut overlap);
    let expected: Vec<u32> = (0..rows).map(|row| (1 + row % 130).min(128)).collect();
    assert_eq!(overlap.device(), expected);
}
