//! What the worker tells the cluster: each rank's KV log, as it grows and on request, and the load. The tasks here run
//! until they are dropped; messages that the bus loses are repaired by whoever misses them.

use crate::service::{Service, unix_ms};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use switchtower_cluster::{BusError, EventBus, Subscription};
use switchtower_ids::{Rank as RankNumber, Row};
use switchtower_kv::event::{EventBatch, RangeAnswer, SequencedEvent};
use switchtower_selection::wire::{
    BATCH_EVENTS_MAX, KV_EVENTS, LOADS, LoadReport, RangeReply, RangeRequest, RankLoad, WireError, decode,
    encode,
};
use tokio::time::{MissedTickBehavior, interval};

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
            match rank.log_from(rank.published() + 1) {
                RangeAnswer::Events { events } => {
                    let Some(last) = events.last().map(|event| event.seq) else {
                        continue;
                    };
                    health.note(self.publish_events(number, events).await);
                    rank.set_published(last);
                }
                // The log has outrun its ring: readers see the gap and ask for the state.
                RangeAnswer::TooOld { snapshot } => rank.set_published(snapshot.seq),
            }
        }
    }

    async fn publish_events(&self, rank: RankNumber, events: Vec<SequencedEvent>) -> Result<(), BusError> {
        let row = Row { worker: self.service.worker_id(), rank };
        let mut payloads = Vec::new();
        for events in events.chunks(BATCH_EVENTS_MAX) {
            let batch = EventBatch { row, incarnation: self.service.incarnation, events: events.to_vec() };
            noted(split_to_fit(batch, self.bus.max_payload(), &mut payloads));
        }
        for payload in payloads {
            self.bus.publish(KV_EVENTS, payload).await?;
        }
        Ok(())
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
        match noted(encode(&report)) {
            Some(payload) => self.bus.publish(LOADS, payload).await,
            None => Ok(()),
        }
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
        let mut health = BusHealth::default();
        while let Some(question) = questions.next().await {
            let Some(request) = noted(decode::<RangeRequest>(&question.payload)) else {
                continue;
            };
            let reply = match self.service.rank(request.rank) {
                Some(rank) => RangeReply::Range(rank.log_from(request.from)),
                None => RangeReply::NoSuchRank,
            };
            if let Some(payload) = noted(fitting_reply(reply, self.bus.max_payload())) {
                health.note(question.respond(payload).await);
            }
        }
    }
}

/// A batch as payloads of at most `limit` bytes: halved until they fit. A single event that does not fit is left to the
/// bus to refuse.
fn split_to_fit(mut batch: EventBatch, limit: usize, payloads: &mut Vec<Bytes>) -> Result<(), WireError> {
    let payload = encode(&batch)?;
    if payload.len() <= limit || batch.events.len() < 2 {
        payloads.push(payload);
        return Ok(());
    }
    let second = batch.events.split_off(batch.events.len() / 2);
    let second = EventBatch { events: second, ..batch };
    split_to_fit(batch, limit, payloads)?;
    split_to_fit(second, limit, payloads)
}

/// The reply in at most `limit` bytes: of events that are too many, the first ones; who asked will ask for the rest.
fn fitting_reply(mut reply: RangeReply, limit: usize) -> Result<Bytes, WireError> {
    loop {
        let payload = encode(&reply)?;
        match &mut reply {
            RangeReply::Range(RangeAnswer::Events { events })
                if payload.len() > limit && events.len() > 1 =>
            {
                events.truncate(events.len() / 2);
            }
            _ => return Ok(payload),
        }
    }
}

/// A message that cannot be written or read costs that message.
fn noted<T>(result: Result<T, WireError>) -> Option<T> {
    result.inspect_err(|error| tracing::warn!(%error, "a message is left out")).ok()
}

/// Tells the log when the bus goes and when it comes back, not at every message.
#[derive(Default)]
struct BusHealth {
    failing: bool,
}

impl BusHealth {
    fn note(&mut self, result: Result<(), BusError>) {
        match &result {
            Err(error) if !self.failing => tracing::warn!(%error, "the worker is not heard on the bus"),
            Ok(()) if self.failing => tracing::info!("the worker is heard on the bus again"),
            _ => {}
        }
        self.failing = result.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchtower_ids::{Incarnation, SequenceHash, Tier};
    use switchtower_kv::event::KvEvent;

    fn events(count: u64) -> Vec<SequencedEvent> {
        let blocks: Vec<_> = (0..50).map(SequenceHash).collect();
        let event = KvEvent::Removed { tier: Tier::Device, blocks };
        (1..=count).map(|seq| SequencedEvent { seq, event: event.clone() }).collect()
    }

    #[test]
    fn batches_are_split_until_they_fit_and_lose_nothing() {
        let batch = EventBatch { row: Row::new(1, 0), incarnation: Incarnation(2), events: events(37) };
        let mut payloads = Vec::new();
        split_to_fit(batch.clone(), 1_000, &mut payloads).unwrap();
        assert!(payloads.len() > 5 && payloads.iter().all(|payload| payload.len() <= 1_000));
        let back = payloads.iter().flat_map(|payload| decode::<EventBatch>(payload).unwrap().events);
        assert_eq!(back.collect::<Vec<_>>(), batch.events);
    }

    #[test]
    fn a_reply_that_is_too_long_brings_the_first_events() {
        let reply = RangeReply::Range(RangeAnswer::Events { events: events(37) });
        let payload = fitting_reply(reply, 1_000).unwrap();
        assert!(payload.len() <= 1_000);
        let RangeReply::Range(RangeAnswer::Events { events: kept }) = decode(&payload).unwrap() else {
            panic!("events were asked for");
        };
        assert!(!kept.is_empty());
        assert_eq!(kept, events(37)[..kept.len()]);
    }
}
