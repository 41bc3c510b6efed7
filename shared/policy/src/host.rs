//! The host's side of the contract: builds a policy's inputs, runs it and validates what it says.
//!
//! Called by the scheduler for every request, and by the tests of a policy. Nothing is booked here; panics are the
//! caller's to catch.

mod build;
mod evaluate;
mod rows;

pub use build::{CacheWeights, ContextBuilder, cache, candidate, columns, load};
pub use evaluate::{Pick, Scratch, choose, evaluate, filter};
pub use rows::Rows;

#[cfg(test)]
mod tests;
