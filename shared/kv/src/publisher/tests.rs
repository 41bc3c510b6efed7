//! What the publisher announces, case by case. Random histories are in `tests/publisher_model.rs`.

use super::*;

fn hashes(blocks: &[u64]) -> Vec<SequenceHash> {
    blocks.iter().copied().map(SequenceHash).collect()
}

fn stored(tier: Tier, parent: u64, blocks: &[u64]) -> KvEvent {
    KvEvent::Stored { tier, parent: (parent != 0).then_some(SequenceHash(parent)), blocks: hashes(blocks) }
}

fn removed(tier: Tier, blocks: &[u64]) -> KvEvent {
    KvEvent::Removed { tier, blocks: hashes(blocks) }
}

/// What `change` makes the publisher announce.
fn announced(publisher: &mut Publisher, change: &KvEvent) -> Vec<KvEvent> {
    let mut out = Vec::new();
    publisher.observe(change, &mut out).unwrap();
    out.into_iter().map(|event| event.event).collect()
}

#[test]
fn a_chain_is_announced_once_and_in_each_tier_it_reaches() {
    let mut publisher = Publisher::default();
    let chain = stored(Tier::Device, 0, &[1, 2, 3]);
    assert_eq!(announced(&mut publisher, &chain), std::slice::from_ref(&chain));
    assert!(announced(&mut publisher, &chain).is_empty());
    let longer = stored(Tier::Device, 0, &[1, 2, 3, 4]);
    assert_eq!(announced(&mut publisher, &longer), [stored(Tier::Device, 3, &[4])]);
    let host = stored(Tier::Host, 1, &[2, 3]);
    assert_eq!(announced(&mut publisher, &host), std::slice::from_ref(&host));
    assert_eq!(announced(&mut publisher, &removed(Tier::Device, &[2])), [removed(Tier::Device, &[2])]);
    assert_eq!((publisher.visible_blocks(), publisher.last_seq()), (4, 4));
}

#[test]
fn b34_a_removed_block_withdraws_its_descendants_and_brings_them_back() {
    let mut publisher = Publisher::default();
    announced(&mut publisher, &stored(Tier::Device, 0, &[1, 2, 3, 4, 5, 6, 7]));
    assert!(announced(&mut publisher, &stored(Tier::Device, 2, &[3])).is_empty(), "a second copy is no news");
    let withdrawal = [removed(Tier::Device, &[7, 6, 5, 4, 3])];
    assert_eq!(announced(&mut publisher, &removed(Tier::Device, &[3])), withdrawal);
    assert!(announced(&mut publisher, &removed(Tier::Device, &[3])).is_empty());
    assert_eq!((publisher.visible_blocks(), publisher.parked_blocks()), (2, 5));
    let back = announced(&mut publisher, &stored(Tier::Device, 2, &[3]));
    assert_eq!(back, [stored(Tier::Device, 2, &[3, 4, 5, 6, 7])]);
    assert_eq!((publisher.visible_blocks(), publisher.parked_blocks()), (7, 0));
}

#[test]
fn b40_removing_an_ancestor_first_and_then_everything_again_is_quiet() {
    let mut publisher = Publisher::default();
    announced(&mut publisher, &stored(Tier::Device, 0, &[1, 2, 3, 4]));
    assert_eq!(
        announced(&mut publisher, &removed(Tier::Device, &[1])),
        [removed(Tier::Device, &[4, 3, 2, 1])]
    );
    for _ in 0..2 {
        assert!(announced(&mut publisher, &removed(Tier::Device, &[2, 3, 4])).is_empty());
    }
    assert_eq!((publisher.visible_blocks(), publisher.parked_blocks()), (0, 0));
    let again = stored(Tier::Device, 0, &[1, 2, 3, 4]);
    assert_eq!(announced(&mut publisher, &again), std::slice::from_ref(&again));
}

#[test]
fn descendants_in_several_tiers_leave_every_tier_before_their_ancestor() {
    let mut publisher = Publisher::default();
    announced(&mut publisher, &stored(Tier::Device, 0, &[1, 2]));
    announced(&mut publisher, &stored(Tier::Host, 1, &[2, 3]));
    let events = announced(&mut publisher, &removed(Tier::Device, &[1]));
    let expected = [
        removed(Tier::Host, &[3]),
        removed(Tier::Device, &[2]),
        removed(Tier::Host, &[2]),
        removed(Tier::Device, &[1]),
    ];
    assert_eq!(events, expected);
}

#[test]
fn children_before_their_parents_wait_for_them() {
    let mut publisher = Publisher::default();
    assert!(announced(&mut publisher, &stored(Tier::Device, 3, &[4, 5])).is_empty());
    assert!(announced(&mut publisher, &stored(Tier::Host, 1, &[2, 3])).is_empty());
    assert_eq!(publisher.parked_blocks(), 5);
    let events = announced(&mut publisher, &stored(Tier::Device, 0, &[1]));
    let expected =
        [stored(Tier::Device, 0, &[1]), stored(Tier::Host, 1, &[2, 3]), stored(Tier::Device, 3, &[4, 5])];
    assert_eq!(events, expected);
}

#[test]
fn contradictions_are_refused_whole() {
    let mut publisher = Publisher::default();
    announced(&mut publisher, &stored(Tier::Device, 0, &[1, 2, 3]));
    announced(&mut publisher, &stored(Tier::Device, 20, &[21]));
    let before = (publisher.last_seq(), publisher.tree.len());
    let conflict = |block| Err(Unpublished::ParentConflict { block: SequenceHash(block) });
    let repeated = |block| Err(Unpublished::Repeated { block: SequenceHash(block) });
    let table = [
        (stored(Tier::Device, 0, &[9, 3]), conflict(3)),
        (stored(Tier::Device, 1, &[3]), conflict(3)),
        (stored(Tier::Device, 2, &[1]), conflict(1)),
        (stored(Tier::Device, 21, &[20]), conflict(20)),
        (stored(Tier::Device, 21, &[9, 20]), conflict(20)),
        (stored(Tier::Device, 3, &[8, 9, 8]), repeated(8)),
        (stored(Tier::Device, 9, &[9]), repeated(9)),
        (KvEvent::Unknown, Err(Unpublished::UnknownKind)),
    ];
    for (change, expected) in table {
        let mut out = Vec::new();
        assert_eq!(publisher.observe(&change, &mut out), expected, "{change:?}");
        assert!(out.is_empty());
        assert_eq!((publisher.last_seq(), publisher.tree.len()), before, "{change:?}");
    }
}

#[test]
fn parked_blocks_are_bounded_both_ways() {
    let limits = PublisherLimits { parked_blocks: 3, ..PublisherLimits::default() };
    let mut publisher = Publisher::new(limits);
    let orphaned = Err(Unpublished::Orphaned { blocks: 3, limit: 3 });
    assert_eq!(publisher.observe(&stored(Tier::Device, 9, &[10, 11, 12]), &mut Vec::new()), orphaned);
    announced(&mut publisher, &stored(Tier::Device, 0, &[1, 2, 3, 4, 5, 6]));
    announced(&mut publisher, &removed(Tier::Device, &[1]));
    assert_eq!(publisher.parked_blocks(), 3);
    let back = announced(&mut publisher, &stored(Tier::Device, 0, &[1]));
    assert_eq!(back, [stored(Tier::Device, 0, &[1, 2, 3])]);
    let full = Publisher::new(PublisherLimits { held_blocks: 2, ..limits })
        .observe(&stored(Tier::Device, 0, &[1, 2, 3]), &mut Vec::new());
    assert_eq!(full, Err(Unpublished::Full { blocks: 3, limit: 2 }));
}

#[test]
fn the_past_is_bounded_and_older_readers_get_a_snapshot() {
    let limits = PublisherLimits { ring_events: 2, ring_blocks: 5, ..PublisherLimits::default() };
    let mut publisher = Publisher::new(limits);
    assert_eq!(publisher.range(1), RangeAnswer::Events { events: vec![] });
    for (parent, blocks) in [(0, [1, 2]), (2, [3, 4]), (4, [5, 6])] {
        announced(&mut publisher, &stored(Tier::Device, parent, &blocks));
    }
    let seqs = |from| match publisher.range(from) {
        RangeAnswer::Events { events } => Some(events.iter().map(|event| event.seq).collect::<Vec<_>>()),
        RangeAnswer::TooOld { snapshot } => {
            assert_eq!(snapshot, publisher.snapshot());
            None
        }
    };
    assert_eq!((seqs(0), seqs(1), seqs(2), seqs(3)), (None, None, Some(vec![2, 3]), Some(vec![3])));
    assert_eq!((seqs(4), seqs(u64::MAX)), (Some(vec![]), Some(vec![])));
    let snapshot = publisher.snapshot();
    assert_eq!(snapshot.seq, 3);
    assert_eq!(snapshot.blocks.len(), 1);
    announced(&mut publisher, &stored(Tier::Device, 6, &[7, 8, 9, 10, 11, 12]));
    assert!(
        matches!(publisher.range(4), RangeAnswer::TooOld { .. }),
        "an event larger than the ring is not kept"
    );
}

#[test]
fn cleared_forgets_parked_blocks_too() {
    let mut publisher = Publisher::default();
    announced(&mut publisher, &stored(Tier::Device, 0, &[1, 2]));
    announced(&mut publisher, &stored(Tier::Device, 8, &[9]));
    assert_eq!(announced(&mut publisher, &KvEvent::Cleared), [KvEvent::Cleared]);
    assert_eq!((publisher.visible_blocks(), publisher.parked_blocks()), (0, 0));
    assert!(publisher.snapshot().blocks.is_empty());
}
