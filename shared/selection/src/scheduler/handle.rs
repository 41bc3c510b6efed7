//! What the rest of the service holds of a scheduler: its methods are the actor's API, its channels stay private.

use super::service::{Command, Release, SchedulerService, SchedulerState};
use crate::{clock::ServiceClock, index::SharedIndex, options::SelectionOptions};
use std::{collections::HashMap, time::Duration};
use switchtower_ids::{Incarnation, ReservationKey, Row, SequenceHash, WorkerId};
use switchtower_kv::index::TierBlocks;
use switchtower_runtime::{CancellationToken, TaskGroup};
use switchtower_scheduling::{
    Rejection, ReleasePermit, Request, ReservationGuard, RowInfo, RowReport, Scheduler, Selection,
    book::Freed,
};
use tokio::sync::{mpsc, oneshot};

/// Calls one scheduler. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SchedulerHandle {
    commands: mpsc::Sender<Command>,
    releases: mpsc::Sender<Release>,
    reservations_max: usize,
}

/// Starts the task of `scheduler` in `tasks`; it ends with `stop`.
pub(crate) fn start(
    scheduler: Scheduler,
    index: SharedIndex,
    clock: ServiceClock,
    options: &SelectionOptions,
    tasks: &StartIn,
) -> SchedulerHandle {
    let (commands, command_queue) = mpsc::channel(options.commands_max);
    let (releases, release_queue) = mpsc::channel(options.reservations_max);
    let service = SchedulerService {
        scheduler,
        index,
        clock,
        commands: command_queue,
        releases: release_queue,
        replies: HashMap::new(),
        stop: tasks.stop.clone(),
    };
    tasks.group.spawn_named(format!("scheduler {}", tasks.name), service.run());
    SchedulerHandle { commands, releases, reservations_max: options.reservations_max }
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

    pub(crate) async fn set_rows(&self, rows: Vec<RowInfo>) {
        // A scheduler that is gone needs no rows.
        drop(self.commands.send(Command::SetRows(rows)).await);
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
