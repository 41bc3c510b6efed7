//! One lease's task: keep-alives, getting the lease back when etcd has lost it, and its end.
//!
//! A keep-alive that is answered with a TTL of 0 or less means lost, as does one that etcd refuses; one without an
//! answer means that the session is suspect, not that the lease is gone. Must not give up while its handle lives.

use crate::{
    connection::{Connection, guarded, within},
    error::Fault,
    leases::{Held, Leases},
    session::{ServerLease, Session},
};
use std::{sync::Arc, time::Duration};
use switchtower_runtime::retry::{Backoff, Failures, RetryTimes};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Keeps one lease.
pub(crate) struct Keeping {
    pub(crate) connection: Arc<Connection>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) held: Arc<Held>,
}

impl Keeping {
    /// Keeps the lease until its handle is gone, then has it revoked.
    pub(crate) async fn run(self) {
        let ended = self.held.ended.clone();
        tokio::select! {
            () = self.keep_for_ever() => {}
            () = ended.cancelled() => self.revoke().await,
            // Without its end having been asked for, the process is gone before its handle: the TTL will do.
            () = self.connection.closed.cancelled() => if ended.is_cancelled() {
                self.revoke().await;
            },
        }
    }

    async fn keep_for_ever(&self) {
        let mut backoff = Backoff::new(RetryTimes { first: Duration::from_millis(50), max: self.period() });
        let mut failures = Failures::default();
        loop {
            let session = self.connection.session().await;
            let server = self.held.server();
            let keeping = guarded(Box::pin(self.keep(&session, server, &mut failures)));
            let kept = session.lost.run_until_cancelled(keeping).await;
            match kept.unwrap_or(Ok(())) {
                Ok(()) => backoff.reset(),
                Err(Fault::LeaseGone) => {
                    if let Err(fault) = self.regain(&session, server).await {
                        failures.failed("getting a lease back", &fault);
                        sleep(backoff.next_delay()).await;
                    }
                }
                Err(fault) => {
                    failures.failed("keeping a lease", &fault);
                    self.connection.suspect();
                    sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    /// Keep-alives on one stream until something is wrong, or until another task got the lease back under another name.
    async fn keep(
        &self,
        session: &Session,
        server: ServerLease,
        failures: &mut Failures,
    ) -> Result<(), Fault> {
        let limit = self.answer_limit();
        let mut client = session.lease();
        let (mut keeper, mut answers) =
            within("a keep-alive", self.connection.options.call_timeout, client.keep_alive(server)).await?;
        let turn = self.leases.turn().await?;
        self.leases.put_again(&turn, session, &self.held).await?;
        drop(turn);
        failures.succeeded("keeping a lease");
        let mut ticks = interval(self.period());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            if self.held.server() != server {
                return Ok(());
            }
            within("a keep-alive", limit, keeper.keep_alive()).await?;
            let answer = within("a keep-alive", limit, answers.message()).await?;
            let answer = answer.ok_or_else(|| Fault::Unreachable("etcd ended the keep-alives".to_owned()))?;
            if answer.ttl() <= 0 {
                return Err(Fault::LeaseGone);
            }
        }
    }

    async fn regain(&self, session: &Session, lost: ServerLease) -> Result<(), Fault> {
        let turn = self.leases.turn().await?;
        let regaining = guarded(Box::pin(self.leases.regain(&turn, session, (&self.held, lost))));
        session.lost.run_until_cancelled(regaining).await.unwrap_or(Ok(()))
    }

    /// Until etcd says that it is gone. The connection's end leaves time for one attempt.
    async fn revoke(&self) {
        let mut backoff = Backoff::new(self.connection.options.retry_times());
        let limit = self.connection.options.call_timeout;
        let closed = &self.connection.closed;
        loop {
            let last = closed.is_cancelled();
            let attempt = within("revoking a lease", limit, async {
                let session = self.connection.session().await;
                let _turn = self.leases.turn().await?;
                session.revoke(self.held.server()).await
            });
            match attempt.await {
                Ok(()) => {
                    self.held.revoked.cancel();
                    return;
                }
                Err(fault) if last => {
                    tracing::debug!(error = %fault, "a lease is left to its TTL");
                    return;
                }
                Err(_) => self.connection.suspect(),
            }
            // `None` means that the connection ends: one more attempt, at once.
            let _ = closed.run_until_cancelled(sleep(backoff.next_delay())).await;
        }
    }

    /// Three keep-alives in a TTL.
    fn period(&self) -> Duration {
        self.held.ttl / 3
    }

    fn answer_limit(&self) -> Duration {
        self.period().min(self.connection.options.call_timeout)
    }
}
