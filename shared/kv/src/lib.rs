//! What the router knows about KV caches: block hashing, the event log of each rank, and the index that finds
//! where a prompt's prefix is cached.
//!
//! The way of one cached block: an engine tells its [`publisher::Publisher`] what it keeps; the publisher numbers
//! the events of its rank's log; a [`cursor::Cursor`] on the router's side puts them in order and notices gaps; the
//! [`index::PrefixIndex`] answers "how much of this prompt does each row hold, and in which tier".
//!
//! Sans-IO: no clock, no randomness, no sockets. Callers are the engine simulator, the worker agent and the
//! ingestor of the selection service.

pub mod cursor;
pub mod event;
pub mod hash;
pub mod index;
pub mod publisher;
mod runs;
mod spread;
mod tiers;
