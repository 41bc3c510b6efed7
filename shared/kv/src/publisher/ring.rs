//! The recent past of one log: numbers events and keeps the newest of them, within two limits.
//!
//! Only the publisher uses it.

use super::PublisherLimits;
use crate::event::{KvEvent, SequencedEvent};
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct EventRing {
    last_seq: u64,
    events: VecDeque<SequencedEvent>,
    blocks: usize,
}

impl EventRing {
    pub(super) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Gives `event` the next number, keeps it, and forgets the oldest ones beyond `limits`.
    pub(super) fn push(&mut self, event: KvEvent, limits: &PublisherLimits) -> SequencedEvent {
        self.last_seq += 1;
        let event = SequencedEvent { seq: self.last_seq, event };
        self.blocks += event.event.block_count();
        self.events.push_back(event.clone());
        while self.events.len() > limits.ring_events || self.blocks > limits.ring_blocks {
            let Some(oldest) = self.events.pop_front() else {
                break;
            };
            self.blocks -= oldest.event.block_count();
        }
        event
    }

    /// At most `most` events from `from` on, or `None` if some of them are forgotten.
    pub(super) fn range(&self, from: u64, most: usize) -> Option<Vec<SequencedEvent>> {
        let from = from.max(1);
        let oldest = self.last_seq + 1 - self.events.len() as u64;
        let skip = from.checked_sub(oldest)?;
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        Some(self.events.iter().skip(skip).take(most).cloned().collect())
    }
}
