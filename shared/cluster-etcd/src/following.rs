//! One watch: a list, the changes after it, and the same again after every gap.
//!
//! Whatever ends the stream (a lost session, a compaction, a stream that gives no sign of life, a reader that fell
//! behind) is a gap, and after a gap comes a `Resync`: rule 1. Must not merge, drop or reorder changes.

use crate::{
    connection::{Connection, guarded, within},
    error::Fault,
    session::{Session, as_i64, as_revision},
    snapshot::{end_of, entry, relative, snapshot},
};
use etcd_client::{Event, EventType, WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream};
use std::sync::Arc;
use switchtower_cluster::{Revision, Sent, WatchEvent, WatchSender};
use switchtower_runtime::retry::Backoff;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

/// Feeds one watch until its reader leaves.
pub(crate) struct Following {
    pub(crate) connection: Arc<Connection>,
    /// Full.
    pub(crate) prefix: String,
    pub(crate) events: WatchSender,
}

/// The reader left.
struct ReaderGone;

impl Following {
    /// Runs until the reader leaves; its caller ends it with the connection.
    pub(crate) async fn run(self) {
        tokio::select! {
            () = self.follow_for_ever() => {}
            () = self.events.closed() => {}
        }
    }

    async fn follow_for_ever(&self) {
        let mut backoff = Backoff::new(self.connection.options.retry_times());
        loop {
            let session = self.connection.session().await;
            let (mut began, started) = (false, Instant::now());
            let following =
                session.lost.run_until_cancelled(guarded(Box::pin(self.follow(&session, &mut began)))).await;
            // One that ends as soon as it began is not a success.
            if began && started.elapsed() > self.connection.options.retry_max {
                backoff.reset();
            }
            match following {
                Some(Ok(ReaderGone)) => return,
                // The next session is waited for, not tried.
                None | Some(Err(Fault::Compacted | Fault::Overflow)) => {}
                Some(Err(fault)) => {
                    tracing::debug!(prefix = self.prefix, error = %fault, "a watch starts over");
                    self.connection.suspect();
                    sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    /// One list and the changes after it, until something is wrong.
    async fn follow(&self, session: &Session, began: &mut bool) -> Result<ReaderGone, Fault> {
        let limit = self.connection.options.call_timeout;
        let snapshot = snapshot(session, &self.connection.root, &self.prefix, limit).await?;
        let (asking, mut answers) = self.open(session, snapshot.revision).await?;
        let created = within("opening a watch", limit, answers.message()).await?;
        check(&created.ok_or_else(ended)?)?;
        *began = true;
        if !self.events.resync(snapshot) {
            return Ok(ReaderGone);
        }
        let mut signs = SignsOfLife::new(asking, self.connection.options.progress_interval);
        loop {
            let answer = tokio::select! {
                answer = answers.message() => answer?.ok_or_else(ended)?,
                tick = signs.due() => {
                    tick?;
                    continue;
                }
            };
            signs.heard();
            check(&answer)?;
            for event in answer.events() {
                match self.pass_on(event) {
                    Sent::Queued => {}
                    Sent::Full => return Err(Fault::Overflow),
                    Sent::Gone => return Ok(ReaderGone),
                }
            }
        }
    }

    async fn open(
        &self,
        session: &Session,
        after: Revision,
    ) -> Result<(WatchRequestSender, WatchResponseStream), Fault> {
        let options = WatchOptions::new()
            .with_range(end_of(&self.prefix))
            .with_start_revision(as_i64(after).saturating_add(1))
            .with_fragment();
        let mut client = session.watch();
        let limit = self.connection.options.call_timeout;
        let stream =
            within("opening a watch", limit, client.watch(self.prefix.as_str(), Some(options))).await?;
        Ok(stream.split())
    }

    fn pass_on(&self, event: &Event) -> Sent {
        let Some(changed) = event.kv() else {
            return Sent::Queued;
        };
        let root = &self.connection.root;
        let event = match event.event_type() {
            EventType::Put => entry(root, changed.clone()).map(WatchEvent::Put),
            EventType::Delete => relative(root, changed.key()).map(|key| WatchEvent::Delete {
                key: key.to_owned(),
                revision: as_revision(changed.mod_revision()),
            }),
        };
        event.map_or(Sent::Queued, |event| self.events.send(event))
    }
}

/// Refuses an answer that ends the watch.
fn check(answer: &WatchResponse) -> Result<(), Fault> {
    if answer.compact_revision() > 0 {
        return Err(Fault::Compacted);
    }
    if answer.canceled() {
        return Err(Fault::Unreachable(format!("etcd ended the watch: {}", answer.cancel_reason())));
    }
    Ok(())
}

fn ended() -> Fault {
    Fault::Unreachable("etcd ended the stream".to_owned())
}

/// Asks a stream for its progress now and then, so that a dead one is not taken for a quiet one.
struct SignsOfLife {
    asking: WatchRequestSender,
    ticks: Interval,
    unanswered: bool,
}

impl SignsOfLife {
    fn new(asking: WatchRequestSender, period: std::time::Duration) -> Self {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { asking, ticks, unanswered: false }
    }

    /// Waits for the next time to ask, and asks. Fails if the last question is unanswered. May be dropped at any time.
    async fn due(&mut self) -> Result<(), Fault> {
        self.ticks.tick().await;
        if self.unanswered {
            return Err(Fault::Unreachable("the watch gives no sign of life".to_owned()));
        }
        self.unanswered = true;
        self.asking.request_progress().await?;
        Ok(())
    }

    fn heard(&mut self) {
        self.unanswered = false;
    }
}
