//! The task that owns a scheduler. It decides nothing: it converts, calls and answers.

use crate::{clock::ServiceClock, index::SharedIndex};
use std::{collections::HashMap, time::Duration};
use switchtower_ids::{Incarnation, ReservationKey, Row, SequenceHash, WorkerId};
use switchtower_kv::index::TierBlocks;
use switchtower_runtime::CancellationToken;
use switchtower_scheduling::{
    Answer, Rejection, Request, RowInfo, RowReport, RowState, Scheduler, Selection, book::Freed,
    policy_host::PolicyHealth,
};
use tokio::sync::{mpsc, oneshot, watch};

/// Where the answer to a request goes.
pub(crate) type Reply = oneshot::Sender<Result<Selection, Rejection>>;

/// What is asked of a scheduler.
pub(crate) enum Command {
    Submit(Box<Request>, Reply),
    Preview(Box<Request>, Reply),
    PrefillComplete { key: ReservationKey, attempt: u32 },
    OutputBlock { key: ReservationKey, total_blocks: u64 },
    Report { row: Row, incarnation: Incarnation, report: RowReport },
    Inhibit { worker: WorkerId, incarnation: Incarnation, span: Duration },
    Overlap(Vec<SequenceHash>, oneshot::Sender<Vec<(Row, TierBlocks)>>),
    Freed(String, oneshot::Sender<Freed>),
    State(oneshot::Sender<SchedulerState>),
    Close,
}

/// A request is over. Travels in a channel of its own, in a place that was taken before the request was submitted.
pub(crate) struct Release {
    pub(crate) key: ReservationKey,
    pub(crate) by_caller: bool,
}

/// A scheduler's state, for people and metrics.
#[derive(Clone, Debug)]
pub(crate) struct SchedulerState {
    pub(crate) rows: Vec<RowState>,
    pub(crate) reservations: usize,
    pub(crate) waiting: usize,
    pub(crate) policy_health: PolicyHealth,
}

/// The actor.
pub(crate) struct SchedulerService {
    pub(crate) scheduler: Scheduler,
    pub(crate) index: SharedIndex,
    pub(crate) clock: ServiceClock,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) releases: mpsc::Receiver<Release>,
    pub(crate) rows: watch::Receiver<Vec<RowInfo>>,
    /// Who waits for the answer to which request.
    pub(crate) replies: HashMap<ReservationKey, Reply>,
    /// How many quarantines of the policy were logged.
    pub(crate) quarantines: u64,
    /// The partition's name, for the log.
    pub(crate) name: String,
    pub(crate) stop: CancellationToken,
}

impl SchedulerService {
    /// Runs until it is told to stop or nobody can call it any more. Waiters are answered before it ends.
    pub(crate) async fn run(mut self) {
        loop {
            let deadline = self.scheduler.next_deadline_ms().map(|ms| self.clock.at_ms(ms));
            let expired = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Releases first: what they free is there for the requests behind them. And a request whose caller is
                // gone by the time its release is handled is seen to be gone when it comes up itself.
                biased;
                () = self.stop.cancelled() => break,
                Some(release) = self.releases.recv() => self.release(&release),
                // Rows before commands: whoever saw them in the registry's view is answered with them.
                Ok(()) = self.rows.changed() => self.set_rows(),
                command = self.commands.recv() => match command {
                    Some(command) => self.handle(command),
                    None => break,
                },
                () = expired => {}
            }
            self.dispatch();
        }
        self.close();
    }

    fn handle(&mut self, command: Command) {
        let now_ms = self.clock.now_ms();
        match command {
            Command::Submit(request, reply) => self.submit(now_ms, *request, reply),
            Command::Preview(request, reply) => {
                let selection = self.scheduler.preview(now_ms, &request, &self.index);
                drop(reply.send(selection));
            }
            Command::PrefillComplete { key, attempt } => {
                self.scheduler.prefill_complete(now_ms, key, attempt);
            }
            Command::OutputBlock { key, total_blocks } => {
                self.scheduler.output_block(now_ms, key, total_blocks);
            }
            Command::Report { row, incarnation, report } => {
                self.scheduler.report(now_ms, row, incarnation, report);
            }
            Command::Inhibit { worker, incarnation, span } => {
                let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
                self.scheduler.inhibit(worker, incarnation, now_ms.saturating_add(span_ms));
            }
            Command::Overlap(blocks, reply) => {
                drop(reply.send(self.scheduler.overlap_scores(&blocks, &self.index)));
            }
            Command::Freed(id, reply) => drop(reply.send(self.scheduler.freed(now_ms, &id))),
            Command::State(reply) => drop(reply.send(self.state())),
            Command::Close => self.close(),
        }
    }

    fn set_rows(&mut self) {
        let rows = self.rows.borrow_and_update().clone();
        self.scheduler.set_rows(rows);
    }

    fn submit(&mut self, now_ms: u64, request: Request, reply: Reply) {
        // The caller's release may have come before the request did: then there is nobody to book for.
        if reply.is_closed() {
            return;
        }
        self.replies.insert(request.key, reply);
        let answer = self.scheduler.submit(now_ms, request, &self.index);
        if let Some(answer) = answer {
            self.answer(answer);
        }
    }

    fn release(&mut self, release: &Release) {
        self.replies.remove(&release.key);
        self.scheduler.release(self.clock.now_ms(), release.key, release.by_caller);
    }

    fn dispatch(&mut self) {
        let now_ms = self.clock.now_ms();
        if self.scheduler.needs_dispatch(now_ms) {
            let mut answers = Vec::new();
            self.scheduler.dispatch(now_ms, &self.index, &mut answers);
            answers.into_iter().for_each(|answer| self.answer(answer));
        }
        self.log_quarantine();
    }

    /// Quarantines grow, so they bound the log; single failures are in the metrics.
    fn log_quarantine(&mut self) {
        let PolicyHealth { quarantines, last_failure, .. } = self.scheduler.policy_health();
        if *quarantines == self.quarantines {
            return;
        }
        self.quarantines = *quarantines;
        let (kind, message) = last_failure.as_ref().map_or(("", ""), |last| (last.label, &last.message));
        tracing::warn!(
            partition = self.name,
            kind,
            message,
            "the policy is quarantined; the fallback serves"
        );
    }

    /// A caller that is gone does not take its answer; what was booked for it is released by its guard.
    fn answer(&mut self, answer: Answer) {
        if let Some(reply) = self.replies.remove(&answer.key) {
            drop(reply.send(answer.result));
        }
    }

    fn close(&mut self) {
        let mut answers = Vec::new();
        self.scheduler.close(&mut answers);
        answers.into_iter().for_each(|answer| self.answer(answer));
    }

    fn state(&self) -> SchedulerState {
        SchedulerState {
            rows: self.scheduler.row_states(),
            reservations: self.scheduler.reservations(),
            waiting: self.scheduler.waiting(),
            policy_health: self.scheduler.policy_health().clone(),
        }
    }
}
