//! One selection on one thread: the default cost, and a custom policy that reads LOAD row by row.
//!
//! Theirs is the selector alone, on overlap and load maps that are filled before the clock starts, as its own benchmark
//! does. Ours is the scheduler's whole preview: it also asks the prefix index, reads the book's columns,
//! checks eligibility, and runs the policy inside its catch. So ours does more. Both sides see the same rows, the same
//! overlap and the same load, and must choose the same row before the clock starts.

mod ours;
mod theirs;

use crate::table::{Better, Table, interleaved, nanoseconds_each};
use ours::OurScheduler;
use std::hint::black_box;
use theirs::TheirSelector;

/// Tokens per block.
pub(crate) const BLOCK_SIZE: u32 = 16;
/// Blocks of the prompt that is asked for: 2,048 tokens.
pub(crate) const BLOCKS: usize = 128;
const ROUNDS: usize = 41;
/// Rows that one round looks at, over all its selections.
const ROWS_PER_ROUND: usize = 1 << 19;

/// Which policy chooses.
#[derive(Clone, Copy)]
pub(crate) enum Policy {
    /// Each side's default cost: ours is `additive`, the same formula.
    Default,
    /// Active prefill blocks + decode blocks + active requests, through the public trait.
    Load,
}

/// What one row holds and has to do.
#[derive(Clone, Copy)]
pub(crate) struct RowLoad {
    pub(crate) worker: u64,
    /// Blocks of the prompt that it has cached.
    pub(crate) overlap: usize,
    /// Private prompts booked there, each of this many blocks.
    pub(crate) requests: u64,
    pub(crate) request_blocks: u64,
}

impl RowLoad {
    /// Loads and overlaps that differ from row to row, with one cheapest row.
    fn of(worker: u64) -> Self {
        let request_blocks = 40 + worker * 37 % 101;
        Self { worker, overlap: worker as usize % 32 * 4, requests: 1 + worker % 3, request_blocks }
    }
}

pub(crate) fn compare(table: &Table) -> anyhow::Result<()> {
    for rows in [64, 256, 1_024] {
        selection(table, "default cost", Policy::Default, rows)?;
    }
    selection(table, "custom LOAD policy, per row", Policy::Load, 1_024)
}

fn selection(table: &Table, name: &str, policy: Policy, rows: u64) -> anyhow::Result<()> {
    let mut loads: Vec<_> = (1..=rows).map(RowLoad::of).collect();
    // The one to choose, wherever it stands.
    let best = &mut loads[rows as usize * 2 / 3];
    (best.overlap, best.requests, best.request_blocks) = (127, 1, 1);
    let theirs = TheirSelector::new(policy, &loads);
    let mut ours = OurScheduler::new(policy, &loads)?;
    let (their_choice, our_choice) = (theirs.select()?, ours.select()?);
    anyhow::ensure!(their_choice == our_choice, "they choose {their_choice}, we choose {our_choice}");
    let times = ROWS_PER_ROUND / rows as usize;
    let each = interleaved(
        ROUNDS,
        || nanoseconds_each(times, |_| drop(black_box(theirs.select()))),
        || nanoseconds_each(times, |_| drop(black_box(ours.select()))),
    );
    table.line(&format!("one selection, {name}, {rows} rows"), "µs", Better::Lower, each.map(|ns| ns / 1e3));
    Ok(())
}
