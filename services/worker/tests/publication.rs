//! What the worker tells the cluster: its KV log, replayed, is its engine's cache; questions about the log are answered;
//! the load is reported.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use support::{Bench, PATIENCE, chat, fast, long_text};
use switchtower_cluster::Subscription;
use switchtower_ids::{Incarnation, Rank, SequenceHash, WorkerId};
use switchtower_kv::event::{EventBatch, KvEvent, RangeAnswer, Snapshot};
use switchtower_selection::wire::{
    KV_EVENTS, LOADS, LoadReport, RangeReply, RangeRequest, decode, encode, range_subject,
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

async fn ask_range(bench: &Bench, rank: u32, from: u64) -> RangeReply {
    let subject = range_subject(WorkerId(7), bench.worker.incarnation());
    let question = encode(&RangeRequest { rank: Rank(rank), from }).unwrap();
    decode(&bench.runtime.bus().request(&subject, question, PATIENCE).await.unwrap()).unwrap()
}

async fn snapshot(bench: &Bench, rank: u32) -> Snapshot {
    match ask_range(bench, rank, 0).await {
        RangeReply::Range(RangeAnswer::TooOld { snapshot }) => snapshot,
        other => panic!("event 0 asks for the state, not {other:?}"),
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
            state.blocks.iter().flat_map(|run| run.blocks.iter().copied()).collect::<BTreeSet<_>>(),
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
    let RangeReply::Range(RangeAnswer::Events { events }) = ask_range(&bench, 0, state.seq - 1).await else {
        panic!("the last two events are kept");
    };
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [state.seq - 1, state.seq]);
    let forgotten = ask_range(&bench, 0, 1).await;
    assert_eq!(forgotten, RangeReply::Range(RangeAnswer::TooOld { snapshot: state }));
    assert_eq!(ask_range(&bench, 9, 1).await, RangeReply::NoSuchRank);
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
