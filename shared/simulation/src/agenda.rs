//! The virtual clock: what will happen, in the order in which it will. Knows nothing of what the events mean.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Events to come and the time of the last one taken. Events of the same time come in the order in which they were put
/// in: the order is total, so a simulation repeats exactly.
#[derive(Debug)]
pub struct Agenda<E> {
    now_us: u64,
    next_number: u64,
    entries: BinaryHeap<Reverse<Entry<E>>>,
}

#[derive(Debug)]
struct Entry<E> {
    at_us: u64,
    number: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (u64, u64) {
        (self.at_us, self.number)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { now_us: 0, next_number: 0, entries: BinaryHeap::new() }
    }
}

impl<E> Agenda<E> {
    /// Nothing to come, at time 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The time, in microseconds.
    #[must_use]
    pub const fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Puts an event in at `at_us`; what is past happens now.
    pub fn put(&mut self, at_us: u64, event: E) {
        let entry = Entry { at_us: at_us.max(self.now_us), number: self.next_number, event };
        self.next_number += 1;
        self.entries.push(Reverse(entry));
    }

    /// Takes the next event; its time is now.
    pub fn take(&mut self) -> Option<E> {
        let Reverse(entry) = self.entries.pop()?;
        self.now_us = entry.at_us;
        Some(entry.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_by_time_and_then_in_the_order_they_were_put(times in prop::collection::vec(0..20_u64, 0..50)) {
            let mut agenda = Agenda::new();
            for (number, at_us) in times.iter().enumerate() {
                agenda.put(*at_us, (*at_us, number));
            }
            let mut expected: Vec<_> = times.iter().copied().zip(0..).collect();
            expected.sort_unstable();
            let mut taken = Vec::new();
            while let Some((at_us, number)) = agenda.take() {
                prop_assert_eq!(agenda.now_us(), at_us);
                taken.push((at_us, number));
            }
            prop_assert_eq!(taken, expected);
        }
    }

    #[test]
    fn time_never_goes_back() {
        let mut agenda = Agenda::new();
        agenda.put(10, 'a');
        assert_eq!(agenda.take(), Some('a'));
        agenda.put(3, 'b');
        assert_eq!((agenda.take(), agenda.now_us(), agenda.take()), (Some('b'), 10, None));
    }
}
