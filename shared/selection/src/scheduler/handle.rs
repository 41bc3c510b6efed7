//! What the rest of the service holds of a scheduler: its methods are the actor's API, its channels stay private.

use super::service::{Command, Release, SchedulerService, SchedulerState};
use crate::{clock::ServiceClock, index::SharedIndex, options::SelectionOptions};
use std::{collections::HashMap, convert::Infallible, num::NonZeroU32, time::Duration};
use switchtower_ids::{Incarnation, ReservationKey, Row, SequenceHash, WorkerId};
use switchtower_kv::index::TierBlocks;
use switchtower_runtime::{CancellationToken, OnError, TaskGroup};
use switchtower_scheduling::{
    Rejection, ReleasePermit, Request, ReservationGuard, RowInfo, RowReport, Scheduler, Selection,
    book::Freed, policy_host::PolicyParts,
};
use tokio::sync::{mpsc, oneshot, watch};

/// Calls one scheduler. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SchedulerHandle {
    commands: mpsc::Sender<Command>,
    releases: mpsc::Sender<Release>,
    rows: watch::Sender<Vec<RowInfo>>,
    reservations_max: usize,
}

/// What a scheduler is made of.
pub(crate) struct SchedulerParts {
    pub(crate) block_size: NonZeroU32,
    pub(crate) policy: PolicyParts,
    pub(crate) index: SharedIndex,
    pub(crate) clock: ServiceClock,
}

/// Starts a scheduler's task in `tasks`; it ends with `stop`. If it fails, the process ends too: a partition without its
/// scheduler would look served and serve nobody (B08). The scheduler is made there, because a policy's factory may take
/// its time.
pub(crate) fn start(parts: SchedulerParts, options: &SelectionOptions, tasks: &StartIn) -> SchedulerHandle {
    let (commands, command_queue) = mpsc::channel(options.commands_max);
    let (releases, release_queue) = mpsc::channel(options.reservations_max);
    let (rows, rows_seen) = watch::channel(Vec::new());
    let (name, stop) = (tasks.name.clone(), tasks.stop.clone());
    let running = async move {
        let SchedulerParts { block_size, policy, index, clock } = parts;
        let service = SchedulerService {
            scheduler: Scheduler::new(block_size.get(), policy),
            index,
            clock,
            commands: command_queue,
            releases: release_queue,
            rows: rows_seen,
            replies: HashMap::new(),
            quarantines: 0,
            name,
            stop,
        };
        service.run().await;
        Ok::<(), Infallible>(())
    };
    tasks.group.spawn(format!("scheduler {}", tasks.name), OnError::ShutDown, running);
    SchedulerHandle { commands, releases, rows, reservations_max: options.reservations_max }
}

/// Where a scheduler's task lives.
pub(crate) struct StartIn {
    pub(crate) group: TaskGroup,
    pub(crate) stop: CancellationToken,
    pub(crate) name: String,
}

/// A place in the channel of releases.
struct Permit(mpsc::OwnedPermit<Release>);

impl ReleasePermit for Permit {
    fn release(self: Box<Self>, key: ReservationKey, by_caller: bool) {
        self.0.send(Release { key, by_caller });
    }
}

impl SchedulerHandle {
    /// The guard of the request that will be submitted under `key`. Dropping it ends the request, whether it waits or
    /// is booked (`book rule 22`).
    pub(crate) fn guard(&self, key: ReservationKey) -> Result<ReservationGuard, Rejection> {
        match self.releases.clone().try_reserve_owned() {
            Ok(permit) => Ok(ReservationGuard::new(key, Box::new(Permit(permit)))),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(Rejection::TooManyReservations { limit: self.reservations_max })
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Rejection::ShuttingDown),
        }
    }

    /// Submits a request whose guard the caller holds, and waits for the answer.
    pub(crate) async fn submit(&self, request: Request) -> Result<Selection, Rejection> {
        self.ask(|reply| Command::Submit(Box::new(request), reply))
            .await
            .unwrap_or(Err(Rejection::ShuttingDown))
    }

    /// Chooses without booking.
    pub(crate) async fn preview(&self, request: Request) -> Result<Selection, Rejection> {
        self.ask(|reply| Command::Preview(Box::new(request), reply))
            .await
            .unwrap_or(Err(Rejection::ShuttingDown))
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }

    /// Whether the news was taken; if not, it is to be brought again.
    #[must_use]
    pub(crate) fn prefill_complete(&self, key: ReservationKey, attempt: u32) -> bool {
        self.tell(Command::PrefillComplete { key, attempt })
    }

    /// As [`prefill_complete`](Self::prefill_complete).
    #[must_use]
    pub(crate) fn output_block(&self, key: ReservationKey, total_blocks: u64) -> bool {
        self.tell(Command::OutputBlock { key, total_blocks })
    }

    /// Never waits. A scheduler that is gone takes everything.
    fn tell(&self, command: Command) -> bool {
        !matches!(self.commands.try_send(command), Err(mpsc::error::TrySendError::Full(_)))
    }

    /// Never waits, so that a scheduler that is busy keeps the registry from nothing; the newest rows count. Whatever is
    /// asked from now on is answered with them.
    pub(crate) fn set_rows(&self, rows: Vec<RowInfo>) {
        self.rows.send_replace(rows);
    }

    /// Reports are repeated, so one that finds no room is not missed.
    pub(crate) fn report(&self, row: Row, incarnation: Incarnation, report: RowReport) {
        let _taken = self.tell(Command::Report { row, incarnation, report });
    }

    /// A hint: lost if there is no room.
    pub(crate) fn inhibit(&self, worker: WorkerId, incarnation: Incarnation, span: Duration) {
        let _taken = self.tell(Command::Inhibit { worker, incarnation, span });
    }

    pub(crate) async fn overlap_scores(&self, blocks: Vec<SequenceHash>) -> Vec<(Row, TierBlocks)> {
        self.ask(|reply| Command::Overlap(blocks, reply)).await.unwrap_or_default()
    }

    pub(crate) async fn freed(&self, id: &str) -> Freed {
        self.ask(|reply| Command::Freed(id.to_owned(), reply)).await.unwrap_or(Freed::Unknown)
    }

    pub(crate) async fn state(&self) -> Option<SchedulerState> {
        self.ask(Command::State).await
    }

    /// Rejects all waiters and newcomers; what is booked lives on.
    pub(crate) async fn close(&self) {
        drop(self.commands.send(Command::Close).await);
    }
}
