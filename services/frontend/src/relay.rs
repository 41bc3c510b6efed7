//! The answer on its way to the client: pulls from the worker only when the client takes, so nothing piles up; keeps the
//! reservation's books as bytes pass; ends a stream that breaks so that clients notice. Dropping it (the client went
//! away) drops the connection to the worker and the reservation with it. Made by `generate`, polled by the server.

use crate::{event_stream::EventStream, exchange::Exchange, idle::Idle, refusal::label, usage::Tail};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use switchtower_selection::Reservation;

/// How the bytes are looked at while they pass.
pub(crate) enum Framing {
    /// Server-sent events.
    Events(Box<EventStream>),
    /// One document; its outcome if it arrives whole.
    Document(Tail, &'static str),
}

/// What a relay is made of.
pub(crate) struct RelayParts {
    /// What has been read of the body.
    pub(crate) read: Bytes,
    /// The rest of it.
    pub(crate) rest: Incoming,
    pub(crate) framing: Framing,
    pub(crate) idle: Idle,
    pub(crate) reservation: Reservation,
    pub(crate) exchange: Exchange,
    /// More output tokens than this are not believed.
    pub(crate) output_tokens_max: u64,
}

/// A response body.
pub(crate) struct Relay {
    read: Option<Bytes>,
    rest: Incoming,
    framing: Framing,
    idle: Idle,
    /// Until the end.
    reservation: Option<Reservation>,
    exchange: Exchange,
    output_tokens_max: u64,
    ended: bool,
}

/// The answer broke in a place where the client can only be told by breaking its connection.
#[derive(Debug, thiserror::Error)]
#[error("the worker's answer {0}")]
pub(crate) struct RelayError(&'static str);

/// How the worker's side ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Broken,
    Silent,
}

impl Relay {
    /// The first byte is here: passes it and all that follow.
    pub(crate) fn start(parts: RelayParts) -> Self {
        let mut reservation = parts.reservation;
        reservation.prefill_complete();
        parts.exchange.first_byte();
        let mut relay = Self {
            read: Some(parts.read).filter(|read| !read.is_empty()),
            rest: parts.rest,
            framing: parts.framing,
            idle: parts.idle,
            reservation: Some(reservation),
            exchange: parts.exchange,
            output_tokens_max: parts.output_tokens_max,
            ended: false,
        };
        // A server does not ask for the frames of a body that has none.
        if relay.read.is_none() && relay.rest.is_end_stream() {
            let _ = relay.finish(End::Whole);
        }
        relay
    }

    /// The next bytes from the worker, or its end.
    fn poll_worker(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, End>> {
        if let Some(read) = self.read.take() {
            return Poll::Ready(Ok(read));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.rest).poll_frame(cx) else {
            ready!(self.idle.poll(cx));
            return Poll::Ready(Err(End::Silent));
        };
        self.idle.disarm();
        Poll::Ready(match frame {
            None => Err(End::Whole),
            Some(Err(_)) => Err(End::Broken),
            // Trailers carry nothing that the API knows.
            Some(Ok(frame)) => Ok(frame.into_data().unwrap_or_default()),
        })
    }

    /// Looks at bytes that came and returns those that may pass.
    fn passing(&mut self, chunk: Bytes) -> Bytes {
        match &mut self.framing {
            Framing::Events(events) => {
                let passing = events.pass(chunk);
                if events.is_done() {
                    self.exchange.settle(events.trouble().unwrap_or(label::OK));
                }
                self.count_output();
                passing
            }
            Framing::Document(tail, outcome) => {
                tail.passed(&chunk);
                // A server that knows the length does not ask for what follows the last byte.
                if self.rest.is_end_stream() {
                    self.exchange.settle(outcome);
                    self.release();
                }
                chunk
            }
        }
    }

    /// The worker's side has ended. What the client gets last, if anything.
    fn finish(&mut self, end: End) -> Option<Result<Frame<Bytes>, RelayError>> {
        self.ended = true;
        let last = match &mut self.framing {
            Framing::Document(_, outcome) if end == End::Whole => {
                self.exchange.settle(outcome);
                None
            }
            Framing::Document(..) => {
                self.exchange.settle(end.outcome());
                Some(Err(RelayError(end.how())))
            }
            Framing::Events(events) => {
                let mut last = if end == End::Whole { events.end() } else { Bytes::new() };
                if events.is_done() {
                    self.exchange.settle(events.trouble().unwrap_or(label::OK));
                } else {
                    self.exchange.settle(events.trouble().unwrap_or(end.outcome()));
                    let message =
                        format!("the worker's answer {} after {} events", end.how(), events.events());
                    last = events.close(&message, end.code());
                }
                Some(last).filter(|last| !last.is_empty()).map(|last| Ok(Frame::data(last)))
            }
        };
        self.release();
        last
    }

    /// The worker's own count where it can be true, ours otherwise.
    fn count_output(&mut self) {
        let (usage, counted) = match &self.framing {
            Framing::Events(events) => (events.usage(), events.events()),
            Framing::Document(tail, _) => (tail.usage(), 0),
        };
        let told = usage.and_then(|usage| usage.completion_tokens);
        let total = told.filter(|told| *told <= self.output_tokens_max).unwrap_or(counted);
        self.exchange.output_tokens(total);
        if let Some(reservation) = &mut self.reservation {
            reservation.output_tokens(total);
        }
    }

    /// The worker is done with the request: the books need not wait for the client to take the last bytes.
    fn release(&mut self) {
        self.count_output();
        self.reservation = None;
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        while !self.ended {
            match ready!(self.poll_worker(cx)) {
                Ok(chunk) => {
                    let passing = self.passing(chunk);
                    if !passing.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(passing))));
                    }
                }
                Err(end) => return Poll::Ready(self.finish(end)),
            }
        }
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Events(_) => SizeHint::default(),
            Framing::Document(..) if self.ended => SizeHint::with_exact(0),
            Framing::Document(..) => {
                add(self.rest.size_hint(), self.read.as_ref().map_or(0, Bytes::len) as u64)
            }
        }
    }
}

fn add(rest: SizeHint, read: u64) -> SizeHint {
    match rest.exact() {
        Some(rest) => SizeHint::with_exact(rest.saturating_add(read)),
        None => SizeHint::default(),
    }
}

impl End {
    fn outcome(self) -> &'static str {
        match self {
            Self::Whole | Self::Broken => label::UNAVAILABLE,
            Self::Silent => label::TIMEOUT,
        }
    }

    fn code(self) -> &'static str {
        match self {
            Self::Whole | Self::Broken => "worker_lost",
            Self::Silent => "worker_timeout",
        }
    }

    fn how(self) -> &'static str {
        match self {
            Self::Whole => "ended too early",
            Self::Broken => "broke off",
            Self::Silent => "stopped coming",
        }
    }
}
