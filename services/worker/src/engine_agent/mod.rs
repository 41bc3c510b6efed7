//! The agent beside a real engine: registers any server with OpenAI's API as a worker without KV events, looks whether it is
//! well, deregisters it when it stops answering, and registers it anew, as another life, when it answers again.
//!
//! Requests do not pass through here: routers send them to the engine itself. So the agent knows nothing of them but what
//! the engine's own metrics say, which it passes on as load reports. It must not start, stop or configure the engine, and
//! must not end because the engine is away. Run by the command; `engine` looks, `metrics` reads, this file decides.

mod config;
mod engine;
mod metrics;

pub use config::{EngineAgentConfig, EngineAgentConfigError};

use crate::{
    identity::{new_incarnation, unix_ms},
    publication::BusHealth,
};
use engine::{Engine, EngineError};
use metrics::{EngineMetrics, KnownBlocks};
use std::time::Duration;
use switchtower_cluster::DistributedRuntime;
use switchtower_runtime::{
    CancellationToken, TaskGroup,
    retry::{Failures, RetryTimes, retry},
};
use switchtower_selection::{
    records::WorkerRecord,
    registration::{Registration, RegistrationState},
    wire::{LOADS, LoadReport, RankLoad, encode},
};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// What is logged when it fails and works again.
const WHAT: &str = "looking at the engine";

/// The shortest wait for an engine that is away.
const FIRST_WAIT: Duration = Duration::from_millis(200);

/// Why an agent ends without being told to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineAgentError {
    /// Another agent has registered the same engine under the same id.
    #[error("worker {worker_id} is registered by another agent for the same engine: run one of them")]
    Replaced {
        /// The worker.
        worker_id: u64,
    },
}

/// An agent that has not begun.
pub struct EngineAgent {
    config: EngineAgentConfig,
    engine: Engine,
    runtime: DistributedRuntime,
    /// Of the registrations. With a token of its own: a record outlives the signal, until the agent takes it back.
    tasks: TaskGroup,
}

/// One life of the engine, from an answer until it stops answering.
struct Life {
    record: WorkerRecord,
    registration: Registration,
    /// What the engine said at its beginning.
    first: EngineMetrics,
}

/// How a life ended.
enum End {
    /// The agent was told to stop.
    Stopped,
    /// The engine is away, or is another one.
    EngineLost,
    /// Another agent has the engine.
    Replaced,
}

impl EngineAgent {
    /// An agent; nothing is asked or registered yet.
    ///
    /// # Errors
    /// The configuration is wrong.
    pub fn build(
        config: EngineAgentConfig,
        runtime: DistributedRuntime,
    ) -> Result<Self, EngineAgentConfigError> {
        config.validate()?;
        let name = format!("engine-agent-{}", config.worker_id);
        let tasks = runtime.tasks().child_with_token(name, CancellationToken::new());
        Ok(Self { engine: Engine::new(&config), config, runtime, tasks })
    }

    /// Keeps the engine registered while it is well, until `stop` is cancelled; then its record says `draining` for the
    /// configured grace and goes. Neither the engine nor the cluster has to be there. Dropping the future is a crash: the record
    /// goes as soon as can be, without a drain.
    ///
    /// # Errors
    /// Another agent has taken the engine over.
    pub async fn run(self, stop: &CancellationToken) -> Result<(), EngineAgentError> {
        while let Some(first) = self.wait_for_engine(stop).await {
            let life = self.begin(first);
            match self.keep(&life, stop).await {
                End::Stopped => {
                    self.drain(life).await;
                    break;
                }
                End::EngineLost => {
                    life.registration.end().await;
                    self.engine.forget();
                }
                End::Replaced => {
                    return Err(EngineAgentError::Replaced { worker_id: self.config.worker_id });
                }
            }
        }
        Ok(())
    }

    /// Until the engine is well and serves the model; `None` when told to stop.
    async fn wait_for_engine(&self, stop: &CancellationToken) -> Option<EngineMetrics> {
        let max = self.config.check_interval();
        let times = RetryTimes { first: FIRST_WAIT.min(max), max };
        retry(WHAT, times, stop, || self.engine.look()).await
    }

    /// A new life: nobody may take the engine's cache and requests for those of the one before.
    fn begin(&self, first: EngineMetrics) -> Life {
        let (worker_id, url) = (self.config.worker_id, self.config.url.as_str());
        if self.config.ranks == 1 && first.named_ranks() > 1 {
            let ranks = first.named_ranks();
            tracing::warn!(
                worker_id,
                ranks,
                "the engine has several data-parallel ranks: set engine_agent.ranks, or all requests go to rank 0"
            );
        }
        let blocks =
            self.loads(&first).iter().map(|load| load.blocks_total).filter(|blocks| *blocks > 0).min();
        let record = self.config.record(new_incarnation());
        let record = WorkerRecord { total_blocks: record.total_blocks.or(blocks), ..record };
        tracing::info!(worker_id, url, incarnation = %record.incarnation, "the engine is well");
        let registration =
            Registration::start(&self.runtime, record.clone(), self.config.lease_ttl(), &self.tasks);
        Life { record, registration, first }
    }

    async fn keep(&self, life: &Life, stop: &CancellationToken) -> End {
        tokio::select! {
            () = stop.cancelled() => End::Stopped,
            () = self.until_lost(life) => End::EngineLost,
            state = life.registration.lost(Duration::ZERO) => match state {
                RegistrationState::Replaced => End::Replaced,
                // Whatever ended it: what follows is a new registration.
                _ => End::EngineLost,
            },
        }
    }

    /// Looks at the engine and reports its load, until it has failed too often or is another one.
    async fn until_lost(&self, life: &Life) {
        let mut ticks = interval(self.config.check_interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut failures, mut failed, mut bus) = (Failures::default(), 0, BusHealth::default());
        self.report(life, &life.first, &mut bus).await;
        // The first one is at once, and the engine has just answered.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            match self.engine.look().await {
                Ok(now) if now.is_restart_after(&life.first) => {
                    tracing::warn!(worker_id = self.config.worker_id, "the engine has restarted");
                    return;
                }
                Ok(now) => {
                    failures.succeeded(WHAT);
                    failed = 0;
                    self.report(life, &now, &mut bus).await;
                }
                Err(error) => {
                    failures.failed(WHAT, &error);
                    failed += 1;
                    if self.is_given_up(failed, &error) {
                        return;
                    }
                }
            }
        }
    }

    fn is_given_up(&self, failed: u32, error: &EngineError) -> bool {
        let given_up = failed >= self.config.failures_max || error.is_final();
        if given_up {
            tracing::warn!(worker_id = self.config.worker_id, failed, %error, "the engine is deregistered");
        }
        given_up
    }

    /// An engine that does not say how loaded it is has no report: unknown, neither idle nor full.
    async fn report(&self, life: &Life, metrics: &EngineMetrics, health: &mut BusHealth) {
        let ranks = self.loads(metrics);
        if ranks.is_empty() {
            return;
        }
        let report = LoadReport {
            worker_id: life.record.worker_id,
            incarnation: life.record.incarnation,
            measured_at_ms: unix_ms(),
            ranks,
        };
        health.note(self.runtime.bus().publish(LOADS, encode(&report)).await);
    }

    fn loads(&self, metrics: &EngineMetrics) -> Vec<RankLoad> {
        let blocks = KnownBlocks { block_size: self.config.block_size, total: self.config.total_blocks };
        metrics.loads(self.config.ranks, blocks)
    }

    /// Routers stop sending; what is inside the engine has the grace, unless nobody can have sent anything.
    async fn drain(&self, life: Life) {
        let worker_id = self.config.worker_id;
        let is_known = !matches!(life.registration.state(), RegistrationState::Refused { .. });
        if is_known {
            tracing::info!(worker_id, grace_ms = self.config.drain_grace_ms, "the engine drains");
            life.registration.update(WorkerRecord { draining: true, ..life.record });
            sleep(self.config.drain_grace()).await;
        }
        life.registration.end().await;
        tracing::info!(worker_id, "the engine is deregistered");
    }
}
