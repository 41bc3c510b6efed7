//! How long messages take between the nodes. Links keep the order of what they carry, as connections do. Loss, reordering
//! and partitions get their place here: whoever sends hears nothing of what becomes of a message.

use crate::Agenda;
use serde::Serialize;
use std::collections::BTreeMap;
use switchtower_policies::Generator;

/// Who can send and receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// A router replica, by number.
    Router(u32),
    /// An engine, by its place in the fleet.
    Engine(u32),
}

/// By which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// A request, or the stream of its answer.
    Stream,
    /// The bus that carries KV events.
    Bus,
}

/// One way from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// Who sends.
    pub from: Node,
    /// Who receives.
    pub to: Node,
    /// By which way.
    pub way: Way,
}

/// How long a message takes, in microseconds: at least `least_us`, and up to `jitter_us` longer, each time as likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Delay {
    /// The shortest time.
    pub least_us: u32,
    /// How much longer it may take.
    pub jitter_us: u32,
}

/// The delays of both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkDelays {
    /// Of [`Way::Stream`].
    pub stream: Delay,
    /// Of [`Way::Bus`].
    pub bus: Delay,
}

impl Default for NetworkDelays {
    /// One data centre: half a millisecond for a stream, two for the bus, which has a server in the middle and batches.
    fn default() -> Self {
        let stream = Delay { least_us: 500, jitter_us: 100 };
        Self { stream, bus: Delay { least_us: 2_000, jitter_us: 1_000 } }
    }
}

/// Carries messages.
#[derive(Debug)]
pub struct Network {
    delays: NetworkDelays,
    generator: Generator,
    /// When the last message on each link arrives: the next one does not pass it.
    last_us: BTreeMap<Link, u64>,
}

impl Network {
    /// A network whose delays are drawn from `seed`.
    #[must_use]
    pub const fn new(delays: NetworkDelays, seed: u64) -> Self {
        Self { delays, generator: Generator::new(seed), last_us: BTreeMap::new() }
    }

    /// Sends what will be `event` for the receiver.
    pub fn send<E>(&mut self, agenda: &mut Agenda<E>, link: Link, event: E) {
        let delay = match link.way {
            Way::Stream => self.delays.stream,
            Way::Bus => self.delays.bus,
        };
        let jitter_us = self.generator.below(delay.jitter_us as usize + 1) as u64;
        let drawn_us = agenda.now_us().saturating_add(u64::from(delay.least_us) + jitter_us);
        let arrives_us = self.last_us.entry(link).or_default();
        *arrives_us = drawn_us.max(*arrives_us);
        agenda.put(*arrives_us, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_take_their_time_and_do_not_pass_each_other() {
        let delay = Delay { least_us: 10, jitter_us: 90 };
        let mut network = Network::new(NetworkDelays { stream: delay, bus: delay }, 7);
        let mut agenda = Agenda::new();
        let link = Link { from: Node::Router(0), to: Node::Engine(3), way: Way::Stream };
        (0..200).for_each(|number| network.send(&mut agenda, link, number));
        let mut taken = Vec::new();
        while let Some(number) = agenda.take() {
            assert!((10..=100).contains(&agenda.now_us()));
            taken.push(number);
        }
        assert_eq!(taken, (0..200).collect::<Vec<_>>());
        assert!(agenda.now_us() > 50, "some messages take longer than the shortest time");
    }
}
