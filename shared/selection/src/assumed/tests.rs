//! What rows are assumed to hold, as a query sees it.

use super::*;
use std::time::Duration;
use switchtower_kv::index::Overlap;
use switchtower_scheduling::OverlapIndex;

struct Setup {
    index: SharedIndex,
    assumptions: Assumptions,
}

fn setup(options: AssumedOptions) -> Setup {
    let index = SharedIndex::default();
    Setup { assumptions: Assumptions::new(index.clone(), options), index }
}

fn info(worker: u64, incarnation: u64) -> RowInfo {
    RowInfo {
        row: Row::new(worker, 0),
        slot: RowSlot(worker as u32),
        incarnation: Incarnation(incarnation),
        revision: 1,
        endpoint: "http://127.0.0.1:1".into(),
        taints: Arc::new([]),
        draining: false,
        total_blocks: Some(10),
        max_batch_tokens: None,
    }
}

fn prompt(name: u64, blocks: u64) -> Arc<[SequenceHash]> {
    (0..blocks).map(|depth| SequenceHash(name * 1_000 + depth)).collect()
}

impl Setup {
    fn follow(&self, rows: &[(RowInfo, bool)]) {
        self.assumptions.follow(rows.iter().map(|(info, kv_events)| (info, *kv_events)));
    }

    fn sent(&self, now_ms: u64, worker: u64, incarnation: u64, prompt: &Arc<[SequenceHash]>) {
        self.assumptions.sent(now_ms, Row::new(worker, 0), Incarnation(incarnation), prompt);
    }

    fn cached(&self, worker: u64, prompt: &[SequenceHash]) -> u32 {
        let mut overlap = Overlap::new();
        self.index.overlap(prompt, &mut overlap);
        overlap.blocks(RowSlot(worker as u32)).total()
    }
}

#[test]
fn what_is_sent_to_a_row_without_events_counts_as_cached_there_for_its_time() {
    let setup = setup(AssumedOptions { ttl: Duration::from_secs(120), ..AssumedOptions::default() });
    setup.follow(&[(info(1, 1), false), (info(2, 1), true)]);
    let asked = prompt(1, 4);
    setup.sent(0, 1, 1, &asked);
    setup.sent(0, 2, 1, &asked);
    assert_eq!((setup.cached(1, &asked), setup.cached(2, &asked)), (4, 0), "a log says more than a guess");
    setup.sent(60_000, 1, 1, &asked[..2].into());
    setup.assumptions.expire(119_999);
    assert_eq!(setup.cached(1, &asked), 4);
    setup.assumptions.expire(120_000);
    assert_eq!(setup.cached(1, &asked), 2, "what was used again stays for its time from then on");
    setup.assumptions.expire(180_000);
    assert_eq!(setup.cached(1, &asked), 0);
    assert_eq!(setup.index.stats().refused, Default::default());
}

#[test]
fn a_row_holds_no_more_than_it_has_blocks() {
    let setup = setup(AssumedOptions::default());
    setup.follow(&[(info(1, 1), false)]);
    let (first, second, long) = (prompt(1, 6), prompt(2, 6), prompt(3, 100));
    setup.sent(0, 1, 1, &first);
    setup.sent(1, 1, 1, &second);
    assert_eq!((setup.cached(1, &first), setup.cached(1, &second)), (4, 6));
    setup.sent(2, 1, 1, &long);
    assert_eq!((setup.cached(1, &first), setup.cached(1, &second), setup.cached(1, &long)), (0, 0, 10));
    assert_eq!(setup.assumptions.blocks(Row::new(1, 0)), 10);
    assert_eq!(setup.index.stats().refused, Default::default());
}

#[test]
fn b24_another_life_has_an_empty_cache_and_what_was_sent_to_the_former_one_does_not_count() {
    let setup = setup(AssumedOptions::default());
    setup.follow(&[(info(1, 1), false)]);
    let asked = prompt(1, 4);
    setup.sent(0, 1, 1, &asked);
    setup.follow(&[(info(1, 1), false)]);
    assert_eq!(setup.cached(1, &asked), 4, "the same life keeps it");
    setup.follow(&[(info(1, 2), false)]);
    assert_eq!(setup.cached(1, &asked), 0);
    setup.sent(1, 1, 1, &asked);
    assert_eq!(setup.cached(1, &asked), 0);
    setup.sent(1, 1, 2, &asked);
    setup.follow(&[]);
    setup.sent(2, 1, 2, &asked);
    assert_eq!(setup.index.stats().pairs, 0, "a row that left holds nothing, whatever is on its way to it");
}

#[test]
fn a_row_that_begins_to_publish_events_starts_over() {
    let setup = setup(AssumedOptions::default());
    setup.follow(&[(info(1, 1), false)]);
    let asked = prompt(1, 4);
    setup.sent(0, 1, 1, &asked);
    setup.follow(&[(info(1, 1), true)]);
    assert_eq!(setup.cached(1, &asked), 0);
}

#[test]
fn a_prediction_bridges_the_time_between_a_booking_and_its_events_and_ends_by_itself() {
    let setup = setup(AssumedOptions { predicted_ttl: Duration::from_secs(2), ..AssumedOptions::default() });
    setup.follow(&[(info(1, 1), true), (info(2, 1), true)]);
    let asked = prompt(1, 6);
    let stored = KvEvent::Stored { tier: Tier::Host, parent: None, blocks: asked[..2].to_vec() };
    setup.index.apply(RowSlot(1), std::iter::once(&stored)).unwrap();
    setup.sent(0, 1, 1, &asked[..5].into());
    assert_eq!(setup.cached(1, &asked), 5, "whichever knows more");
    assert_eq!(setup.cached(2, &asked), 0);
    let mut overlap = Overlap::new();
    setup.index.overlap(&asked, &mut overlap);
    let tiers = overlap.blocks(RowSlot(1));
    assert_eq!((tiers.device, tiers.host), (3, 2));
    assert_eq!(setup.index.stats().pairs, 2, "the index that replicas compare knows only the log");
    setup.assumptions.expire(2_000);
    assert_eq!(setup.cached(1, &asked), 2);
    setup.sent(3_000, 2, 1, &asked);
    setup.follow(&[(info(1, 1), true), (info(2, 9), true)]);
    assert_eq!(setup.cached(2, &asked), 0, "another life has nothing on its way");
}
