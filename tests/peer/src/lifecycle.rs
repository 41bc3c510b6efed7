//! Select, reserve and free, in process, on a current-thread runtime: 64 rows, prompts of 2,048 tokens that no other
//! request has and that are hashed inside, one request after the other.
//!
//! Theirs is the core of their selection service with their reference policy, ours the whole selection service with
//! `additive`, the same cost. One build cannot hold both (README.md, "Two processes"), so ours runs in a process of its
//! own and waits for its turn at a pipe. Both build their requests before the clock starts, give the reservation an id of
//! the caller's, free it by that id, and await the answer to each.

use crate::table::{Better, Table, median};
use anyhow::Context;
use dynamo_kv_router::{
    KvRouterConfig, WorkerSelectionPolicy,
    protocols::RoutingConstraints,
    services::selection::{
        PromptRequest, SelectAndReserveRequest, SelectionCacheConfig, SelectionCore, WorkerRequest,
    },
};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Instant,
};

const ROWS: u64 = 64;
const BLOCK_SIZE: u32 = 16;
const PROMPT_TOKENS: u32 = 2_048;
/// Short rounds and many: on a busy machine most of them run without a break.
const ROUNDS: usize = 301;
const REQUESTS: u64 = 200;
/// Requests before each round that are not timed: the other process had the caches.
const WARM: usize = 50;

/// Requests per second, median and 99th percentile of the time of one, in microseconds.
type Figures = [f64; 3];

pub(crate) fn compare(table: &Table) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut theirs = TheirService { core: runtime.block_on(their_core())?, runtime, next: 0 };
    let mut ours = OurProcess::start()?;
    // Warm both.
    (theirs.round()?, ours.round("id")?, ours.round("guard")?);
    let mut rounds: [Vec<Figures>; 3] = Default::default();
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            rounds[0].push(theirs.round()?);
        }
        rounds[1].push(ours.round("id")?);
        rounds[2].push(ours.round("guard")?);
        if round % 2 == 1 {
            rounds[0].push(theirs.round()?);
        }
    }
    let figure =
        |side: usize, figure: usize| median(rounds[side].iter().map(|round| round[figure]).collect());
    let what = "select + reserve + free, 64 rows, 2,048 tokens";
    for (side, way) in [(1, "by id"), (2, "ours by its guard")] {
        let both = |at| [figure(0, at), figure(side, at)];
        table.line(&format!("{what}, {way}"), "k/s", Better::Higher, both(0).map(|each| each / 1e3));
        table.line("  p50 of one", "µs", Better::Lower, both(1));
        table.line("  p99 of one", "µs", Better::Lower, both(2));
    }
    Ok(())
}

struct TheirService {
    core: SelectionCore,
    runtime: tokio::runtime::Runtime,
    next: u64,
}

impl TheirService {
    fn round(&mut self) -> anyhow::Result<Figures> {
        let requests: Vec<_> = (self.next..self.next + WARM as u64 + REQUESTS).map(their_request).collect();
        self.next += WARM as u64 + REQUESTS;
        self.runtime.block_on(their_round(&self.core, requests))
    }
}

async fn their_core() -> anyhow::Result<SelectionCore> {
    let config = KvRouterConfig {
        router_temperature: 0.0,
        // No request waits, as on our side.
        router_queue_threshold: None,
        ..KvRouterConfig::default()
    };
    let core = SelectionCore::try_new_local(
        config,
        1,
        tokio_util::sync::CancellationToken::new(),
        SelectionCacheConfig::default(),
        // "prefill" is their label of the cost that counts prefill and decode, which `additive` is.
        Arc::new(|config, _, _| WorkerSelectionPolicy::reference(config.clone(), "prefill")),
    )?;
    for worker_id in 1..=ROWS {
        let worker = WorkerRequest {
            worker_id,
            endpoint: Some(format!("http://127.0.0.1:{}", 8_000 + worker_id)),
            // It must have one to be eligible. Nobody is there, so no event comes.
            kv_events_endpoint: Some(format!("tcp://127.0.0.1:{}", 40_000 + worker_id)),
            block_size: Some(BLOCK_SIZE),
            max_num_batched_tokens: Some(8_192),
            total_kv_blocks: Some(100_000),
            ..WorkerRequest::default()
        };
        core.upsert_worker(worker).await.context("the peer refuses a worker")?;
    }
    Ok(core)
}

/// Request `number`, whose prompt and id no other one has.
fn their_request(number: u64) -> SelectAndReserveRequest {
    let tokens = (0..PROMPT_TOKENS).map(|token| token ^ (number as u32).rotate_left(13)).collect();
    SelectAndReserveRequest {
        model_name: "default".to_owned(),
        routing_group: "default".to_owned(),
        selection_id: Some(format!("request-{number}")),
        prompt: PromptRequest { token_ids: Some(tokens), ..PromptRequest::default() },
        router_config_override: None,
        expected_output_tokens: None,
        priority_jump: None,
        strict_priority: None,
        session_id: None,
        session_context: None,
        affinity_target: None,
        pinned_worker: None,
        allowed_worker_ids: None,
        routing_constraints: RoutingConstraints::default(),
    }
}

async fn their_round(
    core: &SelectionCore,
    requests: Vec<SelectAndReserveRequest>,
) -> anyhow::Result<Figures> {
    let mut times_us = Vec::with_capacity(requests.len());
    let mut start = Instant::now();
    for (at, request) in requests.into_iter().enumerate() {
        if at == WARM {
            start = Instant::now();
            times_us.clear();
        }
        let started = Instant::now();
        let id = request.selection_id.clone().context("a request without id")?;
        core.select_and_reserve(request).await.context("the peer reserves nothing")?;
        core.free_reservation(&id).await.context("the peer frees nothing")?;
        times_us.push(started.elapsed().as_nanos() as f64 / 1e3);
    }
    let per_second = times_us.len() as f64 / start.elapsed().as_secs_f64();
    times_us.sort_by(f64::total_cmp);
    let at = |share: f64| times_us.get((times_us.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    Ok([per_second, at(0.5), at(0.99)])
}

/// The program in `ours/`.
struct OurProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl OurProcess {
    fn start() -> anyhow::Result<Self> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/ours");
        let cargo = || {
            let mut command = Command::new(env!("CARGO"));
            command.current_dir(folder);
            command
        };
        let built = cargo().args(["build", "--release", "--locked"]).status()?;
        anyhow::ensure!(built.success(), "{folder} does not build");
        let mut run = cargo();
        run.args(["run", "--release", "--locked", "--quiet"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = run.spawn()?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { input: child.stdin.take(), output, child })
    }

    fn round(&mut self, way: &str) -> anyhow::Result<Figures> {
        let input = self.input.as_mut().context("no input")?;
        writeln!(input, "{way} {WARM} {REQUESTS}")?;
        input.flush()?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let figures: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        figures.try_into().map_err(|_| anyhow::anyhow!("{:?} is no answer of ours", line.trim()))
    }
}

impl Drop for OurProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        self.child.wait().map_or_else(|error| eprintln!("our process did not end: {error}"), drop);
    }
}
