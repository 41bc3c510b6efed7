//! A worker on a bus in memory that answers by script: what is asked, and what comes of the answers.

use super::*;
use crate::wire::{RangeAnswers, RankLog};
use parking_lot::Mutex;
use std::time::Instant;
use switchtower_cluster::{DistributedRuntime, EventBus};
use switchtower_ids::{Incarnation, Rank, Row, SequenceHash, Tier};
use switchtower_kv::{
    event::KvEvent,
    publisher::{Publisher, PublisherLimits},
};

const ROW: Row = Row::new(1, 0);
const LIFE: Incarnation = Incarnation(7);
const DEADLINE: Duration = Duration::from_secs(20);

/// So small that a snapshot of a hundred blocks needs several chunks.
const LIMIT: usize = 300;

fn repair(from: u64, applied: u64) -> Repair {
    Repair { row: ROW, incarnation: LIFE, from, applied, number: 1 }
}

type Script = Arc<Mutex<Vec<RangeWanted>>>;

/// A cluster with a worker that answers each question with what `answer` says; what was asked is in the script.
async fn worker(
    mut answer: impl FnMut(RangeWanted) -> Option<bytes::Bytes> + Send + 'static,
) -> (DistributedRuntime, Script) {
    let runtime = DistributedRuntime::in_memory("test");
    let mut questions = runtime.bus().subscribe(&range_subject(ROW.worker, LIFE)).await.unwrap();
    let asked = Script::default();
    let script = Arc::clone(&asked);
    runtime.tasks().spawn_until_shutdown("worker", async move {
        while let Some(question) = questions.next().await {
            let request: RangeRequest = decode(&question.payload).unwrap();
            script.lock().push(request.wanted);
            // Who is silent stops listening, so that the asker hears at once that nobody answers.
            let Some(payload) = answer(request.wanted) else { return };
            question.respond(payload).await.unwrap();
        }
    });
    (runtime, asked)
}

async fn pulled(runtime: &DistributedRuntime, repair: Repair) -> Option<RepairAnswer> {
    let bus: &dyn EventBus = &**runtime.bus();
    pull(bus, repair, PullLimits::new(DEADLINE)).await
}

/// A log of `events` chains of four blocks each, of which the last `kept` are still there.
fn log(events: u64, kept: usize) -> Publisher {
    let limits = PublisherLimits { ring_events: kept, ..PublisherLimits::default() };
    let mut publisher = Publisher::new(limits);
    (0..events).for_each(|chain| store(&mut publisher, chain));
    publisher
}

fn store(publisher: &mut Publisher, chain: u64) {
    let blocks = (0..4).map(|block| SequenceHash(1_000 + chain * 4 + block)).collect();
    publisher
        .observe(&KvEvent::Stored { tier: Tier::Device, parent: None, blocks }, &mut Vec::new())
        .unwrap();
}

fn answering(publisher: Arc<Mutex<Publisher>>) -> impl FnMut(RangeWanted) -> Option<bytes::Bytes> + Send {
    let mut answers = RangeAnswers::default();
    move |wanted| {
        let request = RangeRequest { rank: Rank(0), wanted };
        Some(answers.answer(request, Some(&*publisher.lock()), LIMIT, Instant::now()))
    }
}

fn hashes(snapshot: &Snapshot) -> Vec<SequenceHash> {
    let mut hashes: Vec<_> = snapshot.blocks.iter().flat_map(|run| run.blocks.clone()).collect();
    hashes.sort_unstable();
    hashes
}

fn snapshot_of(answer: Option<RepairAnswer>) -> Snapshot {
    match answer {
        Some(RepairAnswer::Snapshot(snapshot)) => snapshot,
        other => panic!("a snapshot was expected, not {other:?}"),
    }
}

#[tokio::test]
async fn a_state_that_is_too_large_for_a_message_comes_chunk_by_chunk() {
    let publisher = Arc::new(Mutex::new(log(50, 10)));
    let (runtime, asked) = worker(answering(Arc::clone(&publisher))).await;
    let snapshot = snapshot_of(pulled(&runtime, repair(1, 0)).await);
    assert_eq!((snapshot.seq, hashes(&snapshot)), (50, hashes(&publisher.lock().snapshot())));
    let asked = asked.lock().clone();
    assert!(asked.len() > 5, "{} questions", asked.len());
    assert_eq!(asked[0], RangeWanted::Events { from: 1 });
    for (index, wanted) in (1..).zip(&asked[1..]) {
        assert_eq!(*wanted, RangeWanted::Chunk { snapshot: 1, index });
    }
}

#[tokio::test]
async fn a_range_that_is_too_large_for_a_message_brings_its_first_page_and_how_far_the_log_goes() {
    let (runtime, _) = worker(answering(Arc::new(Mutex::new(log(50, 50))))).await;
    let Some(RepairAnswer::Events { events, last }) = pulled(&runtime, repair(3, 2)).await else {
        panic!("events");
    };
    assert!(events[0].seq == 3 && (2..20).contains(&events.len()) && last == 50);
}

#[tokio::test]
async fn a_snapshot_that_is_gone_is_begun_anew_and_not_for_ever() {
    let publisher = Arc::new(Mutex::new(log(50, 1)));
    let mut answer = answering(Arc::clone(&publisher));
    let mut another = answering(Arc::clone(&publisher));
    let log = Arc::clone(&publisher);
    // Whenever a second chunk is asked for, another router that has more applied already has asked for the state.
    let mut rounds = 0;
    let interrupted = move |wanted| {
        if matches!(wanted, RangeWanted::Chunk { index: 2, .. }) && rounds < 2 {
            rounds += 1;
            store(&mut log.lock(), 100 + rounds);
            let after = log.lock().last();
            answer(RangeWanted::State { after });
        }
        answer(wanted)
    };
    let (runtime, asked) = worker(interrupted).await;
    let snapshot = snapshot_of(pulled(&runtime, repair(0, 50)).await);
    assert_eq!((snapshot.seq, snapshot.blocks.len()), (52, 52));
    let starts = asked.lock().iter().filter(|wanted| matches!(wanted, RangeWanted::State { .. })).count();
    assert_eq!(starts, 3);

    let gone = encode(&RangeReply::Refused(Refusal::SnapshotGone));
    let never = move |wanted| match wanted {
        RangeWanted::Chunk { .. } => Some(gone.clone()),
        other => another(other),
    };
    let (runtime, asked) = worker(never).await;
    assert_eq!(pulled(&runtime, repair(0, 50)).await, None);
    assert_eq!(asked.lock().len(), 2 * STARTS_MAX);
}

#[tokio::test]
async fn b25_a_worker_that_leaves_while_its_snapshot_is_under_way_leaves_nothing() {
    let mut answer = answering(Arc::new(Mutex::new(log(50, 1))));
    let leaves = move |wanted| match wanted {
        RangeWanted::Chunk { index: 3.., .. } => None,
        other => answer(other),
    };
    let (runtime, asked) = worker(leaves).await;
    let limits = PullLimits::new(DEADLINE);
    // The bus may take until the deadline to tell that nobody answers; here it knows at once.
    let quick = PullLimits { deadline: Duration::from_millis(100), ..limits };
    assert_eq!(pull(&**runtime.bus(), repair(1, 0), quick.clone()).await, None);
    assert_eq!(asked.lock().len(), 4);
    assert_eq!(quick.snapshots.available_permits(), SNAPSHOTS_AT_ONCE, "its place is free again");
}

#[tokio::test]
async fn what_is_no_answer_is_none() {
    let other_release = bytes::Bytes::from_static(&[8, 2]);
    let replies = [
        ("another version", other_release),
        ("garbage", bytes::Bytes::from_static(b"{}")),
        ("no such rank", encode(&RangeReply::Refused(Refusal::NoSuchRank))),
    ];
    for (what, reply) in replies {
        let (runtime, asked) = worker(move |_| Some(reply.clone())).await;
        assert_eq!(pulled(&runtime, repair(1, 0)).await, None, "{what}");
        assert_eq!(asked.lock().len(), 1, "{what}");
    }
    let runtime = DistributedRuntime::in_memory("test");
    assert_eq!(pulled(&runtime, repair(1, 0)).await, None, "nobody there");
}

fn chunk(index: u32, chunks: u32) -> SnapshotChunk {
    let run = SnapshotRun { tier: Tier::Device, parent: None, blocks: vec![SequenceHash(index.into())] };
    SnapshotChunk { snapshot: 5, index, chunks, seq: 9, runs: vec![run] }
}

#[test]
fn chunks_that_do_not_belong_together_are_refused() {
    let begun = || Assembly::begin(chunk(0, 3)).unwrap();
    let wrong = [
        ("repeated", chunk(0, 3)),
        ("skipped", chunk(2, 3)),
        ("of another snapshot", SnapshotChunk { snapshot: 6, ..chunk(1, 3) }),
        ("of another time", SnapshotChunk { seq: 10, ..chunk(1, 3) }),
        ("of another length", chunk(1, 4)),
    ];
    for (what, chunk) in wrong {
        assert!(matches!(begun().add(chunk), Err(Unfit::Other { wanted: 1, .. })), "{what}");
    }
    assert!(matches!(Assembly::begin(chunk(1, 3)), Err(Unfit::Other { wanted: 0, got: 1 })));
    let empty = SnapshotChunk { runs: Vec::new(), ..chunk(1, 3) };
    assert_eq!(begun().add(empty), Err(Unfit::Empty(1)));
    let huge =
        SnapshotRun { blocks: vec![SequenceHash(0); SNAPSHOT_BLOCKS_MAX], ..chunk(1, 3).runs.remove(0) };
    assert_eq!(begun().add(SnapshotChunk { runs: vec![huge], ..chunk(1, 3) }), Err(Unfit::TooLarge));
}
