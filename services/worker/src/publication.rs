//! What the worker tells the cluster: each rank's KV log, as it grows and on request, and the load. The tasks here run
//! until they are dropped; messages that the bus loses are repaired by whoever misses them.
//!
//! The engine never waits for the bus. What it logs while a message is on its way is sent together in the next one, and
//! what it logs faster than its log is kept is left to repairs.

use crate::{identity::unix_ms, rank::Rank, service::Service};
use std::{
    ops::AddAssign,
    sync::Arc,
    time::{Duration, Instant},
};
use switchtower_cluster::{BusError, EventBus, Subscription};
use switchtower_ids::{Rank as RankNumber, Row};
use switchtower_kv::event::SequencedEvent;
use switchtower_selection::wire::{
    BATCH_EVENTS_MAX, KV_EVENTS, LOADS, LoadReport, RangeAnswers, RangeReply, RangeRequest, RankLoad,
    RankLog, Refusal, decode, encode, encode_batches,
};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// What has become of a rank's KV events on their way to the bus, since the start. Those that were not sent reach readers
/// by repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublicationCounts {
    /// Messages that the bus took.
    pub batches: u64,
    /// Events in them.
    pub events: u64,
    /// Events in messages that the bus did not take.
    pub failed_events: u64,
    /// Events that were not sent because they are too large for a message, or were no longer kept.
    pub skipped_events: u64,
}

impl AddAssign for PublicationCounts {
    fn add_assign(&mut self, more: Self) {
        self.batches += more.batches;
        self.events += more.events;
        self.failed_events += more.failed_events;
        self.skipped_events += more.skipped_events;
    }
}

/// One worker's voice on the bus.
#[derive(Clone)]
pub(crate) struct Publication {
    pub(crate) service: Arc<Service>,
    pub(crate) bus: Arc<dyn EventBus>,
}

impl Publication {
    /// Publishes one rank's log as it grows.
    pub(crate) async fn publish_log(self, number: RankNumber) {
        let Some(rank) = self.service.rank(number) else {
            return;
        };
        let mut health = BusHealth::default();
        loop {
            rank.log_grown().await;
            while self.publish_next(rank, &mut health).await {}
        }
    }

    /// Publishes what comes next, up to a full batch. `false` if there is nothing.
    async fn publish_next(&self, rank: &Rank, health: &mut BusHealth) -> bool {
        let published = rank.published();
        let Some(events) = rank.events_from(published + 1, BATCH_EVENTS_MAX) else {
            // The log has outrun what is kept of it: readers see the gap and ask for the state.
            let last = rank.last();
            let skipped_events = last - published;
            rank.set_published(last, PublicationCounts { skipped_events, ..PublicationCounts::default() });
            return true;
        };
        let Some(last) = events.last().map(|event| event.seq) else {
            return false;
        };
        let counts = self.publish_events(rank.number(), &events, health).await;
        rank.set_published(last, counts);
        true
    }

    async fn publish_events(
        &self,
        rank: RankNumber,
        events: &[SequencedEvent],
        health: &mut BusHealth,
    ) -> PublicationCounts {
        let row = Row { worker: self.service.worker_id(), rank };
        let encoded = encode_batches(row, self.service.incarnation, events, self.bus.max_payload());
        let skipped_events = encoded.too_large as u64;
        let mut counts = PublicationCounts { skipped_events, ..PublicationCounts::default() };
        for (payload, events) in encoded.batches {
            let published = self.bus.publish(KV_EVENTS, payload).await;
            if published.is_ok() {
                counts.batches += 1;
                counts.events += events as u64;
            } else {
                counts.failed_events += events as u64;
            }
            health.note(published);
        }
        counts
    }

    /// Reports the load at once and then at its interval.
    pub(crate) async fn publish_loads(self) {
        let mut ticks = interval(Duration::from_millis(self.service.config.load_report_ms));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut health = BusHealth::default();
        loop {
            ticks.tick().await;
            health.note(self.publish_load().await);
        }
    }

    async fn publish_load(&self) -> Result<(), BusError> {
        let report = LoadReport {
            worker_id: self.service.worker_id(),
            incarnation: self.service.incarnation,
            measured_at_ms: unix_ms(),
            ranks: self.numbers().filter_map(|number| self.rank_load(number)).collect(),
        };
        self.bus.publish(LOADS, encode(&report)).await
    }

    fn rank_load(&self, rank: RankNumber) -> Option<RankLoad> {
        let own = self.service.rank(rank)?;
        let load = own.load();
        Some(RankLoad {
            rank,
            running: load.running.into(),
            waiting: load.waiting.into(),
            blocks_used: load.blocks_used.into(),
            blocks_total: load.blocks_total.into(),
            prefill_tokens: load.prefill_tokens_waiting,
            // Not the log's end: a reader must not take events for lost that are about to be sent.
            kv_sequence: own.published(),
        })
    }

    fn numbers(&self) -> impl Iterator<Item = RankNumber> + use<> {
        (0..self.service.config.ranks).map(RankNumber)
    }

    /// Answers those who ask for a part of a log, or for the state.
    pub(crate) async fn answer_ranges(self, mut questions: Subscription) {
        let (mut answers, mut health) = (RangeAnswers::default(), BusHealth::default());
        loop {
            let question = match timeout(RangeAnswers::HOLD, questions.next()).await {
                Ok(Some(question)) => question,
                Ok(None) => return,
                Err(_) => {
                    answers.expire(Instant::now());
                    continue;
                }
            };
            let answer = match decode::<RangeRequest>(&question.payload) {
                Ok(request) => {
                    let log = self.service.rank(request.rank).map(|rank| &**rank);
                    answers.answer(request, log, self.bus.max_payload(), Instant::now())
                }
                Err(error) => {
                    tracing::warn!(%error, "a question about a KV log is refused");
                    encode(&RangeReply::Refused(Refusal::NotUnderstood))
                }
            };
            health.note(question.respond(answer).await);
        }
    }
}

/// Tells the log when the bus goes and when it comes back, not at every message.
#[derive(Debug, Default)]
pub(crate) struct BusHealth {
    failing: bool,
}

impl BusHealth {
    pub(crate) fn note(&mut self, result: Result<(), BusError>) {
        match &result {
            Err(error) if !self.failing => tracing::warn!(%error, "the worker is not heard on the bus"),
            Ok(()) if self.failing => tracing::info!("the worker is heard on the bus again"),
            _ => {}
        }
        self.failing = result.is_err();
    }
}
