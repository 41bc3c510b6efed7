//! Our half of the lifecycle comparison: for every line on standard input, `id` or `guard` with two numbers, runs
//! that many reservations untimed and that many timed, and prints requests per second and the median and 99th
//! percentile in microseconds.
//!
//! Only `switchtower-peer` starts it; it compares nothing itself. It ends when its input does.

use anyhow::Context;
use std::{
    io::{BufRead, Write},
    sync::Arc,
    time::{Duration, Instant},
};
use switchtower_cluster::DistributedRuntime;
use switchtower_ids::{Incarnation, Stage, WorkerId};
use switchtower_policy::KvRouterConfig;
use switchtower_selection::{
    SelectionHandle, SelectionRequest, SelectionService, SelectionServiceBuilder,
    records::{RECORD_VERSION, WorkerRecord},
};

const MODEL: &str = "model";
const BLOCK_SIZE: u32 = 16;
const PROMPT_TOKENS: u32 = 2_048;
const ROWS: u64 = 64;

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let service = runtime.block_on(start())?;
    let handle = service.handle();
    let mut first = 0;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let way = words.next().context("no way")?;
        let warm: u64 = words.next().context("no number of requests before the clock starts")?.parse()?;
        let count: u64 = words.next().context("no number of requests")?.parse()?;
        let next = first + warm + count;
        let (before, timed) = ((first..first + warm).map(request), (first + warm..next).map(request));
        let [before, timed]: [Vec<_>; 2] = [before.collect(), timed.collect()];
        first = next;
        let figures = runtime.block_on(async {
            run(way, &handle, before).await?;
            run(way, &handle, timed).await
        })?;
        println!("{} {} {}", figures[0], figures[1], figures[2]);
        std::io::stdout().flush()?;
    }
    runtime.block_on(service.shutdown());
    Ok(())
}

/// A service on a cluster of its own, which knows all workers.
async fn start() -> anyhow::Result<SelectionService> {
    let cluster = DistributedRuntime::in_memory("peer");
    for worker in 1..=ROWS {
        let record = record(worker);
        cluster.discovery().put(&record.key(), record.to_json()?.into(), None).await?;
    }
    let config = KvRouterConfig { policy: "additive".to_owned(), seed: 1, ..KvRouterConfig::default() };
    let service = SelectionServiceBuilder::new(config).distributed_runtime(cluster).build().await?;
    let handle = service.handle();
    let all = |models: &[_]| {
        models.first().is_some_and(|model: &switchtower_selection::ModelStatus| model.rows as u64 == ROWS)
    };
    let known = tokio::time::timeout(Duration::from_secs(10), handle.wait_for_models(all)).await?;
    anyhow::ensure!(known, "the service ended before it knew its workers");
    Ok(service)
}

fn record(worker: u64) -> WorkerRecord {
    WorkerRecord {
        version: RECORD_VERSION,
        worker_id: WorkerId(worker),
        incarnation: Incarnation(1),
        endpoint: format!("http://127.0.0.1:{}", 8_000 + worker),
        model: MODEL.to_owned(),
        routing_group: "default".to_owned(),
        stage: Stage::Aggregated,
        ranks: 1,
        block_size: BLOCK_SIZE,
        total_blocks: Some(100_000),
        max_batch_tokens: Some(8_192),
        taints: Default::default(),
        draining: false,
        kv_events: true,
    }
}

/// Request `number`, whose prompt and id no other one has.
fn request(number: u64) -> SelectionRequest {
    let tokens: Arc<[u32]> =
        (0..PROMPT_TOKENS).map(|token| token ^ (number as u32).rotate_left(13)).collect();
    let id = format!("request-{number}").into();
    SelectionRequest { reservation_id: Some(id), ..SelectionRequest::new(MODEL, tokens) }
}

/// Reserves and frees one request after the other.
async fn run(
    way: &str,
    handle: &SelectionHandle,
    requests: Vec<SelectionRequest>,
) -> anyhow::Result<[f64; 3]> {
    let mut times_us = Vec::with_capacity(requests.len());
    let start = Instant::now();
    for request in requests {
        let started = Instant::now();
        match way {
            // By the caller's id, as the peer does it.
            "id" => {
                let reserved = handle.reserve_detached(request).await?;
                handle.free(&reserved.id).await;
            }
            // By the guard that the reservation is.
            "guard" => {
                let unnamed = SelectionRequest { reservation_id: None, ..request };
                handle.select_and_reserve(unnamed).await?.free();
            }
            other => anyhow::bail!("there is no way `{other}`"),
        }
        times_us.push(started.elapsed().as_nanos() as f64 / 1e3);
    }
    let per_second = times_us.len() as f64 / start.elapsed().as_secs_f64();
    times_us.sort_by(f64::total_cmp);
    let at = |share: f64| times_us.get((times_us.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    Ok([per_second, at(0.5), at(0.99)])
}
