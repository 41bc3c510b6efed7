//! What the worker tells the cluster: its KV log, replayed, is its engine's cache; questions about the log are answered;
//! the load is reported.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use support::{Bench, PATIENCE, chat, fast, long_text, until};
use switchtower_cluster::Subscription;
use switchtower_ids::{Incarnation, Rank, SequenceHash, WorkerId};
use switchtower_kv::event::{EventBatch, KvEvent};
use switchtower_selection::wire::{
    KV_EVENTS, LOADS, LoadReport, RangeReply, RangeRequest, RangeWanted, Refusal, SnapshotChunk, decode,
    encode, range_subject,
};
use switchtower_worker::SimulatedWorkerConfig;

const CHAT: &str = "/v1/chat/completions";

/// Each rank's cache according to its events.
#[derive(Default)]
struct Replay {
    seq: BTreeMap<Rank, u64>,
    blocks: BTreeMap<Rank, BTreeSet<SequenceHash>>,
}

impl Replay {
    fn apply(&mut self, batch: EventBatch) {
        let rank = batch.row.rank;
        let (seq, blocks) = (self.seq.entry(rank).or_default(), self.blocks.entry(rank).or_default());
        for event in batch.events {
            assert_eq!(event.seq, *seq + 1, "the log has no holes and no repetitions on a healthy bus");
            *seq = event.seq;
            match event.event {
                KvEvent::Stored { parent, blocks: stored, .. } => {
                    assert!(parent.is_none_or(|parent| blocks.contains(&parent)));
                    blocks.extend(stored);
                }
                KvEvent::Removed { blocks: removed, .. } => removed.iter().for_each(|hash| {
                    assert!(blocks.remove(hash));
                }),
                KvEvent::Cleared => blocks.clear(),
                KvEvent::Unknown => panic!("the worker knows what it says"),
            }
        }
    }

    /// Reads on until rank `rank` has reached event `seq`.
    async fn follow(&mut self, events: &mut Subscription, rank: Rank, seq: u64) {
        while self.seq.get(&rank).copied().unwrap_or(0) < seq {
            let message = tokio::time::timeout(PATIENCE, events.next()).await.expect("the log goes on");
            self.apply(decode(&message.expect("the bus lives").payload).expect("a batch"));
        }
    }
}

async fn ask_range(bench: &Bench, rank: u32, wanted: RangeWanted) -> RangeReply {
    let subject = range_subject(WorkerId(7), bench.worker.incarnation());
    let question = encode(&RangeRequest { rank: Rank(rank), wanted });
    decode(&bench.runtime.bus().request(&subject, question, PATIENCE).await.unwrap()).unwrap()
}

/// The state, which here always fits into one chunk.
async fn snapshot(bench: &Bench, rank: u32) -> SnapshotChunk {
    match ask_range(bench, rank, RangeWanted::State { after: 0 }).await {
        RangeReply::Snapshot(chunk) if chunk.chunks == 1 => chunk,
        other => panic!("the state was asked for, not {other:?}"),
    }
}

/// Two ranks with little memory, so that blocks are evicted.
fn crowded() -> SimulatedWorkerConfig {
    let mut config = SimulatedWorkerConfig { ranks: 2, ..fast() };
    config.engine.total_blocks = 60;
    config
}

#[tokio::test]
async fn the_events_replayed_are_the_engines_cache() {
    let bench = Bench::start(crowded()).await;
    let mut events = bench.runtime.bus().subscribe(KV_EVENTS).await.unwrap();
    for round in 0..12 {
        let bodies = [format!("{round} {}", long_text(40)), long_text(30 + round % 3 * 10)];
        for body in bodies {
            assert!(bench.ask(CHAT, &chat(&body)).await.0.is_success());
        }
    }
    let mut replay = Replay::default();
    for rank in [0, 1] {
        let state = snapshot(&bench, rank).await;
        replay.follow(&mut events, Rank(rank), state.seq).await;
        let cached: BTreeSet<_> = bench.worker.cached_blocks(Rank(rank)).into_iter().collect();
        assert_eq!(replay.blocks.get(&Rank(rank)).cloned().unwrap_or_default(), cached);
        assert_eq!(
            state.runs.iter().flat_map(|run| run.blocks.iter().copied()).collect::<BTreeSet<_>>(),
            cached
        );
    }
    assert!(replay.seq.values().sum::<u64>() > 24, "blocks were stored and evicted");
}

#[tokio::test]
async fn a_range_brings_the_missed_events_and_a_forgotten_one_the_state() {
    let bench = Bench::start(SimulatedWorkerConfig { kept_events: 3, ..crowded() }).await;
    for round in 0..6 {
        bench.ask(CHAT, &chat(&format!("{round} {}", long_text(40)))).await;
    }
    let state = snapshot(&bench, 0).await;
    assert!(state.seq > 3);
    let last_two = RangeWanted::Events { from: state.seq - 1 };
    let RangeReply::Events { events, last } = ask_range(&bench, 0, last_two).await else {
        panic!("the last two events are kept");
    };
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [state.seq - 1, state.seq]);
    assert_eq!(last, state.seq);
    let RangeReply::Snapshot(forgotten) = ask_range(&bench, 0, RangeWanted::Events { from: 1 }).await else {
        panic!("event 1 is forgotten");
    };
    assert_eq!((forgotten.seq, forgotten.runs), (state.seq, state.runs));
    let refused = |refusal| RangeReply::Refused(refusal);
    let asked = ask_range(&bench, 9, RangeWanted::Events { from: 1 }).await;
    assert_eq!(asked, refused(Refusal::NoSuchRank));
    let asked = ask_range(&bench, 0, RangeWanted::Chunk { snapshot: 1, index: 1 }).await;
    assert_eq!(asked, refused(Refusal::SnapshotGone));
    assert_eq!(ask_range(&bench, 0, RangeWanted::Unknown).await, refused(Refusal::NotUnderstood));
    let subject = range_subject(WorkerId(7), bench.worker.incarnation());
    let of_a_later_release = bytes::Bytes::from_static(&[8, 2]);
    let answer = bench.runtime.bus().request(&subject, of_a_later_release, PATIENCE).await.unwrap();
    assert_eq!(decode::<RangeReply>(&answer), Ok(refused(Refusal::NotUnderstood)));
}

#[tokio::test]
async fn the_load_of_every_rank_is_reported_with_the_end_of_its_log() {
    let bench = Bench::start(SimulatedWorkerConfig { ranks: 3, ..fast() }).await;
    let mut loads = bench.runtime.bus().subscribe(LOADS).await.unwrap();
    bench.ask(CHAT, &chat(&long_text(40))).await;
    let seq = snapshot(&bench, 0).await.seq;
    let told = async {
        loop {
            let report: LoadReport = decode(&loads.next().await.unwrap().payload).unwrap();
            assert_eq!((report.worker_id, report.incarnation), (WorkerId(7), bench.worker.incarnation()));
            assert_eq!(report.ranks.iter().map(|load| load.rank.0).collect::<Vec<_>>(), [0, 1, 2]);
            assert!(report.measured_at_ms > 0 && report.ranks[0].blocks_total == 25_600);
            if report.ranks[0].kv_sequence == seq {
                break report;
            }
        }
    };
    let report = tokio::time::timeout(PATIENCE, told).await.unwrap();
    assert!(seq > 0 && report.ranks[1].kv_sequence == 0);
}

#[tokio::test]
async fn b24_a_new_life_starts_a_new_log_under_its_own_incarnation() {
    let lives: Vec<Incarnation> = {
        let (one, two) = (Bench::start(fast()).await, Bench::start(fast()).await);
        let mut lives = Vec::new();
        for bench in [&one, &two] {
            let mut events = bench.runtime.bus().subscribe(KV_EVENTS).await.unwrap();
            bench.ask(CHAT, &chat(&long_text(40))).await;
            let message = tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap();
            let batch: EventBatch = decode(&message.payload).unwrap();
            assert_eq!((batch.events[0].seq, batch.incarnation), (1, bench.worker.incarnation()));
            lives.push(batch.incarnation);
        }
        lives
    };
    assert_ne!(lives[0], lives[1]);
}

#[tokio::test]
async fn b32_a_reset_cache_is_told_as_cleared() {
    let bench = Bench::start(fast()).await;
    let mut events = bench.runtime.bus().subscribe(KV_EVENTS).await.unwrap();
    bench.ask(CHAT, &chat(&long_text(40))).await;
    assert!(!bench.worker.cached_blocks(Rank(0)).is_empty());
    let (status, _) = bench.ask("/reset_prefix_cache", &serde_json::json!({})).await;
    assert!(status.is_success());
    assert!(bench.worker.cached_blocks(Rank(0)).is_empty());
    let mut replay = Replay::default();
    let told = async {
        while replay.blocks.values().any(|blocks| !blocks.is_empty()) || replay.seq.is_empty() {
            replay.apply(decode(&events.next().await.unwrap().payload).unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("the log tells of it");
}

#[tokio::test]
async fn what_the_bus_did_not_take_is_counted_and_can_be_asked_for() {
    let bench = Bench::start(fast()).await;
    let counts = || bench.worker.publication(Rank(0)).expect("rank 0");
    bench.ask(CHAT, &chat(&long_text(40))).await;
    until("the events are out", || counts().events > 0).await;
    let sent = counts();
    bench.connection.bus.set_reachable(false);
    bench.ask(CHAT, &chat(&format!("another {}", long_text(40)))).await;
    until("the loss is counted", || counts().failed_events > 0).await;
    bench.connection.bus.set_reachable(true);
    let missed = RangeWanted::Events { from: sent.events + 1 };
    let RangeReply::Events { events, last } = ask_range(&bench, 0, missed).await else {
        panic!("the events are kept");
    };
    until("all is accounted for", || counts().events + counts().failed_events == last).await;
    assert_eq!((counts().events, counts().skipped_events), (sent.events, 0));
    assert_eq!(events.len() as u64, counts().failed_events);
    assert!(counts().batches <= counts().events);
}
