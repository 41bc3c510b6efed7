//! KV events from a real NATS server into one router: `cargo bench -p switchtower-tests --bench ingestion`.
//!
//! Prints blocks per second from the first publication to the last block in the index, what of a block's time is decoding,
//! the index, and the way through NATS; and the index's lag under 1,000 events a second from 100 workers. Needs a NATS
//! server as the tests do; checks nothing.

use anyhow::Context;
use bytes::Bytes;
use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};
use switchtower_cluster::{ClusterName, DistributedRuntime, EventBus, RuntimeParts, memory::MemoryCluster};
use switchtower_ids::{Incarnation, Rank, Row, SequenceHash, Tier, WorkerId};
use switchtower_kv::{
    event::{EventBatch, KvEvent, SequencedEvent},
    index::{PrefixIndex, RowSlot},
};
use switchtower_nats::{NatsBus, NatsOptions};
use switchtower_policy::KvRouterConfig;
use switchtower_runtime::TaskGroup;
use switchtower_selection::{
    SelectionHandle, SelectionServiceBuilder,
    wire::{KV_EVENTS, RangeReply, decode, encode},
};
use switchtower_tests::servers::nats::{Nats, programs};

const WORKERS: u64 = 100;
const EVENT_BLOCKS: u64 = 16;
/// Events in one message when throughput is measured, as a publisher under load makes them.
const BATCH_EVENTS: u64 = 64;
const BATCHES: u64 = 4_096;
/// Blocks that may be on their way: less than a subscription holds, so that nothing is lost and asked for again.
const UNDER_WAY_MAX: u64 = 512 * BATCH_EVENTS * EVENT_BLOCKS;
const LAG_EVENTS: u64 = 10_000;
const LAG_EVENTS_PER_SECOND: u32 = 1_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = programs().into_iter().next_back().context("no NATS server")?;
    let nats = Nats::start(&program).await;
    let mut run = Run::start(&nats.url()).await?;
    run.throughput().await?;
    run.lag().await
}

/// Spreads a number over 64 bits, as hashes are.
const fn spread(number: u64) -> u64 {
    let number = (number ^ (number >> 31)).wrapping_mul(0x7FB5_D329_728E_A185);
    let number = (number ^ (number >> 27)).wrapping_mul(0x81DA_DEF4_BC2D_D44D);
    number ^ (number >> 33)
}

/// A router, and the workers' side of the bus.
struct Run {
    router: SelectionHandle,
    bus: NatsBus,
    /// Events published so far of each worker.
    published: Vec<u64>,
    blocks: u64,
}

impl Run {
    async fn start(url: &str) -> anyhow::Result<Self> {
        let (name, tasks) = (ClusterName::from("ingestion"), TaskGroup::new());
        let bus = connected(url, &name, &tasks).await?;
        answer_ranges(&bus, &tasks).await?;
        let memory = MemoryCluster::new("ingestion").runtime();
        let routers_bus = connected(url, &name, &tasks).await?;
        let runtime = DistributedRuntime::new(RuntimeParts {
            cluster_name: name,
            discovery: Arc::clone(memory.discovery()),
            bus: Arc::new(routers_bus),
            tasks,
        });
        for worker in 1..=WORKERS {
            memory.discovery().put(&format!("workers/{worker}"), record(worker), None).await?;
        }
        let builder = SelectionServiceBuilder::new(KvRouterConfig::default()).distributed_runtime(runtime);
        let service = builder.build().await?;
        let router = service.handle();
        // It lives as long as the process.
        std::mem::forget(service);
        router.ready().await;
        Ok(Self { router, bus, published: vec![0; WORKERS as usize], blocks: 0 })
    }

    /// The next events of a worker, in chains of their own.
    fn batch(&mut self, worker: u64, events: u64) -> EventBatch {
        let published = &mut self.published[worker as usize - 1];
        let from = *published + 1;
        *published += events;
        self.blocks += events * EVENT_BLOCKS;
        let event = |seq: u64| {
            let block = |at| SequenceHash(spread((worker << 40) + seq * EVENT_BLOCKS + at));
            let blocks = (0..EVENT_BLOCKS).map(block).collect();
            SequencedEvent { seq, event: KvEvent::Stored { tier: Tier::Device, parent: None, blocks } }
        };
        let events = (from..from + events).map(event).collect();
        EventBatch { row: Row::new(worker, 0), incarnation: Incarnation(worker), events }
    }

    async fn indexed(&self) -> u64 {
        self.router.loads().await.iter().map(|partition| partition.index.pairs).sum()
    }

    async fn until_indexed(&self, blocks: u64) {
        while self.indexed().await < blocks {
            tokio::task::yield_now().await;
        }
    }

    async fn throughput(&mut self) -> anyhow::Result<()> {
        let payloads: Vec<Bytes> = (0..BATCHES)
            .map(|number| encode(&self.batch(number % WORKERS + 1, BATCH_EVENTS)))
            .collect::<Vec<_>>();
        let batch_blocks = BATCH_EVENTS * EVENT_BLOCKS;
        let whole = Instant::now();
        for (number, payload) in (0..).zip(&payloads) {
            self.until_indexed((number * batch_blocks).saturating_sub(UNDER_WAY_MAX)).await;
            self.bus.publish(KV_EVENTS, payload.clone()).await?;
        }
        self.until_indexed(self.blocks).await;
        let whole = per_block(whole.elapsed(), self.blocks);
        let decoding = per_block(decoding(&payloads)?, self.blocks);
        let index = per_block(indexing(&payloads)?, self.blocks);
        println!("{:.1} M blocks/s from NATS into the index ({whole:.1} ns a block)", 1_000.0 / whole);
        let share = |part: f64| part / whole * 100.0;
        let rest = (whole - decoding - index).max(0.0);
        println!(
            "decoding {decoding:.1} ns ({:.0} %), index {index:.1} ns ({:.0} %), NATS and the rest {rest:.1} ns ({:.0} %)",
            share(decoding),
            share(index),
            share(rest)
        );
        Ok(())
    }

    async fn lag(&mut self) -> anyhow::Result<()> {
        let pause = Duration::from_secs(1) / LAG_EVENTS_PER_SECOND;
        let (mut lags, mut sent) = (Vec::new(), std::collections::VecDeque::new());
        let start = Instant::now();
        let mut next = 0;
        while (lags.len() as u64) < LAG_EVENTS {
            if next < LAG_EVENTS && start.elapsed() >= pause * next as u32 {
                let payload = encode(&self.batch(next % WORKERS + 1, 1));
                sent.push_back((Instant::now(), self.blocks));
                self.bus.publish(KV_EVENTS, payload).await?;
                next += 1;
            }
            let indexed = self.indexed().await;
            while let Some((at, blocks)) = sent.front().copied()
                && blocks <= indexed
            {
                lags.push(at.elapsed());
                sent.pop_front();
            }
        }
        lags.sort_unstable();
        let at = |share: f64| lags[((lags.len() - 1) as f64 * share) as usize];
        println!(
            "lag from publication to index at {LAG_EVENTS_PER_SECOND} events/s of {WORKERS} workers: p50 {:?}, p99 {:?}, max {:?}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
        Ok(())
    }
}

async fn connected(url: &str, name: &ClusterName, tasks: &TaskGroup) -> anyhow::Result<NatsBus> {
    let bus = NatsBus::connect(NatsOptions::new(url), name, tasks).await?;
    while !bus.health().connected {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(bus)
}

/// Workers that have published nothing yet say so.
async fn answer_ranges(bus: &NatsBus, tasks: &TaskGroup) -> anyhow::Result<()> {
    let mut questions = bus.subscribe("kv.range.>").await?;
    tasks.spawn_until_shutdown("ranges", async move {
        while let Some(question) = questions.next().await {
            let nothing = RangeReply::Events { events: Vec::new(), last: 0 };
            if let Err(error) = question.respond(encode(&nothing)).await {
                eprintln!("a question stays open: {error}");
            }
        }
    });
    Ok(())
}

fn record(worker: u64) -> Bytes {
    let record = format!(
        r#"{{"version":1,"worker_id":{},"incarnation":{worker},"endpoint":"http://127.0.0.1:1","model":"m","block_size":16}}"#,
        WorkerId(worker)
    );
    Bytes::from(record)
}

fn per_block(time: Duration, blocks: u64) -> f64 {
    time.as_nanos() as f64 / blocks as f64
}

fn decoding(payloads: &[Bytes]) -> anyhow::Result<Duration> {
    let start = Instant::now();
    for payload in payloads {
        black_box(decode::<EventBatch>(payload)?);
    }
    Ok(start.elapsed())
}

fn indexing(payloads: &[Bytes]) -> anyhow::Result<Duration> {
    let batches =
        payloads.iter().map(|payload| decode::<EventBatch>(payload)).collect::<Result<Vec<_>, _>>()?;
    let mut index = PrefixIndex::default();
    let start = Instant::now();
    for batch in &batches {
        let slot = RowSlot(u32::try_from(batch.row.worker.0)?);
        for event in &batch.events {
            index.apply(slot, &event.event).map_err(|refused| anyhow::anyhow!("{refused}"))?;
        }
    }
    let time = start.elapsed();
    anyhow::ensure!(batches.iter().all(|batch| batch.row.rank == Rank(0)), "one rank each");
    Ok(time)
}
