//! The indexes: applying Stored events on one thread, and asking for the holders of a 128-block prompt.
//!
//! The peer's side is its compressed concurrent radix tree, the index of its service. Events reach it on its own worker
//! loop, which takes them from a channel; ours are taken from a channel of the same kind, filled before the clock starts.
//! Both consume their events, so both pay for dropping them.

use crate::{
    scenario::{Prompt, Scenario},
    table::{Better, CpuTime, Table, interleaved, nanoseconds_each},
};
use anyhow::Context;
use dynamo_kv_router::{
    ConcurrentRadixTreeCompressed, RadixTree, SyncIndexer, indexer::WorkerTask, protocols::RouterEvent,
};
use std::{hint::black_box, sync::Arc, thread::JoinHandle, time::Duration};
use switchtower_kv::index::{IndexLimits, Overlap, PrefixIndex, RowSlot};

const ROUNDS: usize = 9;

/// The peer's tree with its worker loop, which owns the map for removals.
pub(crate) struct TheirIndex {
    pub(crate) tree: Arc<ConcurrentRadixTreeCompressed>,
    tasks: flume::Sender<WorkerTask>,
    worker: Option<JoinHandle<()>>,
}

impl TheirIndex {
    /// Starts the worker loop on what is in the channel and what is still to come.
    pub(crate) fn start((tasks, queue): (flume::Sender<WorkerTask>, flume::Receiver<WorkerTask>)) -> Self {
        let tree = Arc::new(ConcurrentRadixTreeCompressed::new());
        let shared = Arc::clone(&tree);
        let worker = std::thread::spawn(move || {
            shared.worker(queue, None).unwrap_or_else(|error| eprintln!("the peer's worker failed: {error}"));
        });
        Self { tree, tasks, worker: Some(worker) }
    }

    /// Applies one more event, some time.
    pub(crate) fn send(&self, event: RouterEvent) -> anyhow::Result<()> {
        Ok(self.tasks.send(WorkerTask::Event(event))?)
    }

    /// Returns when everything that was sent is applied.
    pub(crate) fn flush(&self) -> anyhow::Result<()> {
        let (flushed, wait) = tokio::sync::oneshot::channel();
        self.tasks.send(WorkerTask::Flush(flushed))?;
        wait.blocking_recv().context("the peer's worker ended early")
    }

    /// With everything applied that `events` holds.
    fn of(events: impl Iterator<Item = RouterEvent>) -> anyhow::Result<Self> {
        let index = Self::start(filled(events.map(WorkerTask::Event)));
        index.flush()?;
        Ok(index)
    }
}

impl Drop for TheirIndex {
    fn drop(&mut self) {
        let ended = self.tasks.send(WorkerTask::Terminate).is_ok();
        if let Some(worker) = self.worker.take().filter(|_| ended) {
            worker.join().unwrap_or_else(|_| eprintln!("the peer's worker panicked"));
        }
    }
}

/// A channel that holds all of `events`.
pub(crate) fn filled<T>(events: impl Iterator<Item = T>) -> (flume::Sender<T>, flume::Receiver<T>) {
    let (sender, receiver) = flume::unbounded();
    events.for_each(|event| drop(sender.send(event)));
    (sender, receiver)
}

pub(crate) fn compare(table: &Table) -> anyhow::Result<()> {
    for (name, scenario) in [
        ("every prompt on one row", Scenario { rows: 64, prompts: 8_000, holders: 1 }),
        ("every prompt on 4 rows", Scenario { rows: 64, prompts: 2_000, holders: 4 }),
    ] {
        let prompts = scenario.prompts();
        apply(table, name, scenario, &prompts)?;
        query(table, name, scenario, &prompts)?;
    }
    Ok(())
}

fn apply(table: &Table, name: &str, scenario: Scenario, prompts: &[Prompt]) -> anyhow::Result<()> {
    let million_per_second = |start: CpuTime| scenario.pairs() as f64 / start.elapsed().as_secs_f64() / 1e6;
    let mut failure = None;
    let ours = || {
        let events = filled(scenario.our_events(prompts));
        let start = CpuTime::now();
        let mut index = PrefixIndex::new(IndexLimits::default());
        while let Ok((slot, event)) = events.1.try_recv() {
            index.apply(slot, &event).unwrap_or_else(|refused| panic!("our index refused: {refused}"));
        }
        let speed = million_per_second(start);
        assert_eq!(index.stats().pairs, scenario.pairs());
        speed
    };
    let theirs = || {
        let events = filled(scenario.their_events(prompts).map(WorkerTask::Event));
        let start = CpuTime::now();
        let index = TheirIndex::start(events);
        let flushed = index.flush();
        let speed = million_per_second(start);
        failure = failure.take().or(flushed.err());
        speed
    };
    let speeds = interleaved(ROUNDS, theirs, ours);
    failure.map_or(Ok(()), Err)?;
    table.line(&format!("index: apply Stored, {name}"), "M blocks/s", Better::Higher, speeds);
    let plain = || {
        let events: Vec<RouterEvent> = scenario.their_events(prompts).collect();
        let start = CpuTime::now();
        let mut tree = RadixTree::new();
        for event in events {
            tree.apply_event(event).unwrap_or_else(|error| panic!("the peer's plain tree refused: {error}"));
        }
        million_per_second(start)
    };
    let speeds = interleaved(3, plain, ours);
    table.line(&format!("  the same, their plain RadixTree, {name}"), "M blocks/s", Better::Higher, speeds);
    Ok(())
}

/// Both indexes answer with every holder and how many of the prompt's first blocks it holds; the answers are compared
/// before the clock starts. Ours writes into columns that are used again, as the scheduler does; theirs returns a new map,
/// which is dropped. Each starts from the hashes that it is asked with: theirs local ones, ours sequence hashes, which
/// both routers need for booking anyway. They are asked twice: with hashes that nobody has read for a while, as where
/// another thread has computed them, and with hashes at hand, as where the same thread has just done so.
fn query(table: &Table, name: &str, scenario: Scenario, prompts: &[Prompt]) -> anyhow::Result<()> {
    let theirs = TheirIndex::of(scenario.their_events(prompts))?;
    let mut ours = PrefixIndex::new(IndexLimits::default());
    for (slot, event) in scenario.our_events(prompts) {
        ours.apply(slot, &event)?;
    }
    let absent = scenario.prompts + 1;
    let full = scenario.prompts();
    let half = prompts.iter().zip(absent..).map(|(prompt, seed)| prompt.diverging(seed)).collect();
    let miss = (absent..absent + scenario.prompts).map(Prompt::of_seed).collect();
    for (kind, queries) in [("full hit", full), ("half hit", half), ("miss", miss)] {
        let queries: Vec<Prompt> = shuffled(queries);
        for query in &queries {
            assert_eq!(their_answer(&theirs, query), our_answer(&ours, query), "{name}, {kind}");
        }
        let mut overlap = Overlap::new();
        let ask_theirs =
            |query: &Prompt| drop(black_box(theirs.tree.find_matches(&query.their_local, false)));
        let mut ask_ours = |query: &Prompt| {
            ours.overlap(&query.sequence, &mut overlap);
            black_box(&overlap);
        };
        let times = interleaved(
            ROUNDS,
            || nanoseconds_each(queries.len(), |at| ask_theirs(&queries[at])),
            || nanoseconds_each(queries.len(), |at| ask_ours(&queries[at])),
        );
        table.line(&format!("index: 128-block query, {kind}, {name}"), "ns", Better::Lower, times);
        let times = interleaved(
            ROUNDS,
            || {
                at_hand(
                    &queries,
                    |query| query.their_local.iter().fold(0, |all, hash| all ^ hash.0),
                    ask_theirs,
                )
            },
            || {
                at_hand(
                    &queries,
                    |query| query.sequence.iter().fold(0, |all, hash| all ^ hash.0),
                    &mut ask_ours,
                )
            },
        );
        table.line(&format!("  the same, hashes at hand, {kind}, {name}"), "ns", Better::Lower, times);
    }
    Ok(())
}

/// Nanoseconds per query, of queries that are `read` shortly before, off the clock.
fn at_hand(queries: &[Prompt], read: impl Fn(&Prompt) -> u64, mut ask: impl FnMut(&Prompt)) -> f64 {
    /// Many, so that the clock costs little; few, so that their hashes stay in the CPU's cache.
    const BATCH: usize = 100;
    let mut taken = Duration::ZERO;
    for batch in queries.chunks(BATCH) {
        batch.iter().for_each(|query| {
            black_box(read(query));
        });
        let start = CpuTime::now();
        batch.iter().for_each(&mut ask);
        taken += start.elapsed();
    }
    taken.as_nanos() as f64 / queries.len() as f64
}

/// In an order that has nothing to do with the order of arrival.
fn shuffled(mut queries: Vec<Prompt>) -> Vec<Prompt> {
    queries.sort_by_key(|query| query.sequence.last().copied());
    queries
}

fn their_answer(index: &TheirIndex, query: &Prompt) -> Vec<(u64, u32)> {
    let scores = index.tree.find_matches(&query.their_local, false).scores;
    let mut rows: Vec<_> = scores.iter().map(|(worker, depth)| (worker.worker_id, *depth)).collect();
    rows.sort_unstable();
    rows
}

fn our_answer(index: &PrefixIndex, query: &Prompt) -> Vec<(u64, u32)> {
    let mut overlap = Overlap::new();
    index.overlap(&query.sequence, &mut overlap);
    let depth = |slot: &RowSlot| (u64::from(slot.0), overlap.blocks(*slot).total());
    let mut rows: Vec<_> = overlap.touched().iter().map(depth).collect();
    rows.sort_unstable();
    rows
}
