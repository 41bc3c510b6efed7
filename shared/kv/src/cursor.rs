//! Puts one log's events in order on the receiving side: what may be applied, what came twice, what is missing.
//!
//! One [`Cursor`] per row (worker, rank): ranks number their logs independently, so their gaps are independent.
//! The cursor decides; the caller applies to the index and asks the publisher. It knows no clock: the caller
//! decides when an unanswered repair is asked for again, from [`Cursor::gap`].
//!
//! Lives are told apart but not ordered here (an incarnation is an opaque number): the caller, who sees the
//! registrations, calls [`Cursor::begin`] and [`Cursor::end`]; the cursor remembers which lives are over.

use crate::event::SequencedEvent;
use std::collections::{BTreeMap, VecDeque};
use switchtower_ids::Incarnation;

/// A hole in a log: the events `from..=to` have not arrived. Ask the publisher for everything from `from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// First missing event.
    pub from: u64,
    /// Last missing event before the next one that has arrived.
    pub to: u64,
}

/// What became of an offered event. Whatever may be applied now was appended to the caller's `ready`, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The event was next: it, and any that waited for it, are ready.
    Applied,
    /// It was applied before, or waits already.
    Duplicate,
    /// It is ahead of a hole whose repair has been asked for, or of a snapshot. It waits, or was dropped because too many
    /// wait (the repair then brings it again).
    Waiting,
    /// A hole that was not known before: ask for its repair, once. The event itself is ready or waits.
    Gap(Gap),
    /// It belongs to a life that is over: drop it.
    StaleIncarnation,
    /// It belongs to a life that was never begun: hold it until the registry knows the life, or drop it.
    NewIncarnation,
}

/// What becomes of an offered snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotOffer {
    /// Replace the row's state with it, then apply what is in `ready`; `gap` is a hole that is left.
    Replace {
        /// A hole behind the snapshot to ask for, once.
        gap: Option<Gap>,
    },
    /// It is older than what is applied: ignore it.
    Old,
    /// It belongs to a life that is over.
    StaleIncarnation,
    /// It belongs to a life that was never begun.
    NewIncarnation,
}

/// Where the receiver stands in one row's logs.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    incarnation: Option<Incarnation>,
    ended: VecDeque<Incarnation>,
    applied: u64,
    highest_seen: u64,
    /// Holes that end at or before this number have been reported.
    reported_to: u64,
    waiting: BTreeMap<u64, SequencedEvent>,
    /// Nothing is handed out before a snapshot, or until [`Cursor::resume`].
    held: bool,
}

impl Cursor {
    /// How many events may wait for a hole to close.
    pub const MAX_WAITING: usize = 64;
    /// How many lives that are over are remembered. Older ones look new again, and the registry does not know them.
    pub const MAX_ENDED: usize = 16;

    /// A cursor of a row that has no life yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts at event 0 of `incarnation`'s log; any other life is over. The caller empties the row in the index
    /// when this returns true. Beginning the current life again changes nothing and returns false.
    pub fn begin(&mut self, incarnation: Incarnation) -> bool {
        if self.incarnation == Some(incarnation) {
            return false;
        }
        self.end();
        self.ended.retain(|ended| *ended != incarnation);
        self.incarnation = Some(incarnation);
        true
    }

    /// The row has no life any more: its late events are stale from now on.
    pub fn end(&mut self) {
        let Some(over) = self.incarnation else { return };
        let mut ended = std::mem::take(&mut self.ended);
        if ended.len() == Self::MAX_ENDED {
            ended.pop_front();
        }
        ended.push_back(over);
        *self = Self { ended, ..Self::default() };
    }

    /// The life whose log is followed.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.incarnation
    }

    /// The last event that was handed out; everything up to it is applied.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// The first hole, reported or not: what a timer asks for again.
    #[must_use]
    pub fn gap(&self) -> Option<Gap> {
        let end = match self.waiting.first_key_value() {
            Some((first, _)) => *first - 1,
            None => self.highest_seen,
        };
        (end > self.applied).then(|| Gap { from: self.applied + 1, to: end })
    }

    /// The row's state is not to be trusted: from now on events wait, until a snapshot replaces the state or
    /// [`Cursor::resume`] gives up on one. Otherwise a snapshot that takes long would always be older than what was
    /// applied while it was on its way.
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// Goes on without a snapshot: what waited and is next is ready.
    pub fn resume(&mut self, ready: &mut Vec<SequencedEvent>) {
        self.held = false;
        self.release(ready);
    }

    /// Takes one event, live or from a repair.
    pub fn offer(
        &mut self,
        incarnation: Incarnation,
        event: SequencedEvent,
        ready: &mut Vec<SequencedEvent>,
    ) -> Offer {
        match self.life_of(incarnation) {
            Life::Over => return Offer::StaleIncarnation,
            Life::Unknown => return Offer::NewIncarnation,
            Life::Current => {}
        }
        let seq = event.seq;
        if seq <= self.applied || self.waiting.contains_key(&seq) {
            return Offer::Duplicate;
        }
        self.highest_seen = self.highest_seen.max(seq);
        if seq - self.applied == 1 && !self.held {
            self.applied = seq;
            ready.push(event);
            self.release(ready);
        } else {
            self.park(event);
        }
        match self.unreported_gap() {
            Some(gap) => Offer::Gap(gap),
            None if seq <= self.applied => Offer::Applied,
            None => Offer::Waiting,
        }
    }

    /// Takes a snapshot that includes everything up to `seq`.
    pub fn offer_snapshot(
        &mut self,
        incarnation: Incarnation,
        seq: u64,
        ready: &mut Vec<SequencedEvent>,
    ) -> SnapshotOffer {
        match self.life_of(incarnation) {
            Life::Over => return SnapshotOffer::StaleIncarnation,
            Life::Unknown => return SnapshotOffer::NewIncarnation,
            Life::Current if seq < self.applied => return SnapshotOffer::Old,
            Life::Current => {}
        }
        self.held = false;
        self.applied = seq;
        self.highest_seen = self.highest_seen.max(seq);
        while self.waiting.first_key_value().is_some_and(|(first, _)| *first <= seq) {
            self.waiting.pop_first();
        }
        self.release(ready);
        SnapshotOffer::Replace { gap: self.unreported_gap() }
    }

    fn life_of(&self, incarnation: Incarnation) -> Life {
        if self.incarnation == Some(incarnation) {
            Life::Current
        } else if self.ended.contains(&incarnation) {
            Life::Over
        } else {
            Life::Unknown
        }
    }

    /// Hands out the events that waited and are next now.
    fn release(&mut self, ready: &mut Vec<SequencedEvent>) {
        while let Some(entry) = self.waiting.first_entry() {
            if *entry.key() - self.applied != 1 {
                return;
            }
            self.applied = *entry.key();
            ready.push(entry.remove());
        }
    }

    /// The nearest events are kept: a repair closes their hole first.
    fn park(&mut self, event: SequencedEvent) {
        self.waiting.insert(event.seq, event);
        if self.waiting.len() > Self::MAX_WAITING {
            self.waiting.pop_last();
        }
    }

    /// A repair answers up to the publisher's present, so a hole below what was seen when the last one was
    /// reported is already asked for.
    fn unreported_gap(&mut self) -> Option<Gap> {
        let gap = self.gap().filter(|gap| gap.to > self.reported_to)?;
        self.reported_to = self.highest_seen;
        Some(gap)
    }
}

enum Life {
    Current,
    Over,
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::KvEvent;

    const LIFE: Incarnation = Incarnation(7);

    fn event(seq: u64) -> SequencedEvent {
        SequencedEvent { seq, event: KvEvent::Cleared }
    }

    fn following() -> Cursor {
        let mut cursor = Cursor::new();
        assert!(cursor.begin(LIFE));
        cursor
    }

    fn gap(from: u64, to: u64) -> Offer {
        Offer::Gap(Gap { from, to })
    }

    /// Offers `seqs` in turn and compares each answer; returns what became ready, in order.
    fn offers(cursor: &mut Cursor, table: &[(u64, Offer)]) -> Vec<u64> {
        let mut ready = Vec::new();
        for (seq, expected) in table {
            assert_eq!(cursor.offer(LIFE, event(*seq), &mut ready), *expected, "event {seq}");
        }
        ready.iter().map(|event| event.seq).collect()
    }

    #[test]
    fn events_in_order_are_applied_and_repeats_are_not() {
        use Offer::{Applied, Duplicate};
        let table =
            [(1, Applied), (1, Duplicate), (2, Applied), (1, Duplicate), (3, Applied), (0, Duplicate)];
        assert_eq!(offers(&mut following(), &table), [1, 2, 3]);
    }

    #[test]
    fn while_held_events_wait_until_a_snapshot_or_without_it() {
        use Offer::{Applied, Duplicate, Waiting};
        let mut cursor = following();
        assert_eq!(offers(&mut cursor, &[(1, Applied)]), [1]);
        cursor.hold();
        assert_eq!(offers(&mut cursor, &[(2, Waiting), (3, Waiting), (2, Duplicate)]), [0_u64; 0]);
        assert_eq!((cursor.applied(), cursor.gap()), (1, None));
        let mut given_up = cursor.clone();
        let mut ready = Vec::new();
        given_up.resume(&mut ready);
        assert_eq!((ready.len(), given_up.applied()), (2, 3));
        ready.clear();
        let replaced = cursor.offer_snapshot(LIFE, 2, &mut ready);
        assert_eq!((replaced, ready), (SnapshotOffer::Replace { gap: None }, vec![event(3)]));
        assert_eq!(offers(&mut cursor, &[(4, Applied)]), [4]);
    }

    #[test]
    fn a_gap_is_reported_once_and_what_waits_follows_its_repair() {
        use Offer::{Applied, Duplicate, Waiting};
        let mut cursor = following();
        let live = [(1, Applied), (4, gap(2, 3)), (5, Waiting), (4, Duplicate)];
        assert_eq!(offers(&mut cursor, &live), [1]);
        assert_eq!(cursor.gap(), Some(Gap { from: 2, to: 3 }));
        let repair = [(2, Applied), (3, Applied), (4, Duplicate), (5, Duplicate), (6, Applied)];
        assert_eq!(offers(&mut cursor, &repair), [2, 3, 4, 5, 6]);
        assert_eq!(cursor.gap(), None);
    }

    #[test]
    fn a_second_gap_is_reported_when_the_first_repair_cannot_have_covered_it() {
        use Offer::{Applied, Waiting};
        let mut cursor = following();
        let table = [(3, gap(1, 2)), (6, Waiting), (1, Applied), (2, gap(4, 5)), (4, Applied), (5, Applied)];
        assert_eq!(offers(&mut cursor, &table), [1, 2, 3, 4, 5, 6]);
        assert_eq!(cursor.applied(), 6);
    }

    #[test]
    fn the_wait_is_bounded_and_what_fell_out_is_asked_for_again() {
        let mut cursor = following();
        let mut ready = Vec::new();
        let last = Cursor::MAX_WAITING as u64 + 10;
        for seq in (2..=last).rev() {
            cursor.offer(LIFE, event(seq), &mut ready);
        }
        assert_eq!(cursor.waiting.len(), Cursor::MAX_WAITING);
        cursor.offer(LIFE, event(1), &mut ready);
        let applied = Cursor::MAX_WAITING as u64 + 1;
        assert_eq!(cursor.applied(), applied);
        assert_eq!(cursor.gap(), Some(Gap { from: applied + 1, to: last }));
    }

    #[test]
    fn lives_that_are_over_are_stale_and_unknown_ones_wait_for_the_registry() {
        let mut cursor = following();
        let mut ready = Vec::new();
        cursor.offer(LIFE, event(1), &mut ready);
        assert_eq!(cursor.offer(Incarnation(8), event(1), &mut ready), Offer::NewIncarnation);
        assert!(cursor.begin(Incarnation(8)));
        assert!(!cursor.begin(Incarnation(8)));
        assert_eq!(cursor.applied(), 0);
        assert_eq!(cursor.offer(LIFE, event(2), &mut ready), Offer::StaleIncarnation);
        assert_eq!(cursor.offer_snapshot(LIFE, 9, &mut ready), SnapshotOffer::StaleIncarnation);
        assert_eq!(cursor.offer(Incarnation(8), event(1), &mut ready), Offer::Applied);
        assert_eq!(ready.len(), 2);
    }

    #[test]
    fn remembered_lives_are_bounded() {
        let mut cursor = Cursor::new();
        for life in 0..100 {
            cursor.begin(Incarnation(life));
        }
        assert_eq!(cursor.ended.len(), Cursor::MAX_ENDED);
    }

    #[test]
    fn b22_a_snapshot_below_the_applied_prefix_is_ignored() {
        let mut cursor = following();
        let mut ready = Vec::new();
        offers(&mut cursor, &[(1, Offer::Applied), (2, Offer::Applied), (5, gap(3, 4))]);
        assert_eq!(cursor.offer_snapshot(LIFE, 1, &mut ready), SnapshotOffer::Old);
        assert_eq!(cursor.offer_snapshot(LIFE, 4, &mut ready), SnapshotOffer::Replace { gap: None });
        assert_eq!((cursor.applied(), ready.len()), (5, 1));
        assert_eq!(cursor.offer_snapshot(LIFE, 4, &mut ready), SnapshotOffer::Old);
        assert_eq!(offers(&mut cursor, &[(6, Offer::Applied)]), [6]);
    }

    #[test]
    fn extreme_numbers_do_no_harm() {
        let mut cursor = following();
        let mut ready = Vec::new();
        assert_eq!(cursor.offer(LIFE, event(u64::MAX), &mut ready), gap(1, u64::MAX - 1));
        let replaced = cursor.offer_snapshot(LIFE, u64::MAX, &mut ready);
        assert_eq!(replaced, SnapshotOffer::Replace { gap: None });
        assert_eq!(cursor.offer(LIFE, event(u64::MAX), &mut ready), Offer::Duplicate);
        assert_eq!(cursor.gap(), None);
        assert!(ready.is_empty());
    }
}
