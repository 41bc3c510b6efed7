//! One selection on one thread: the default cost, and a custom policy that reads LOAD: ours through the trait's method for one
//! row, theirs through the one method that its trait has, for all rows.
//!
//! The first lines compare the choice alone: theirs is the selector on overlap and load maps that are filled before the
//! clock starts, as its own benchmark does; ours is the scheduler's preview on an overlap that is ready where the scheduler
//! reads it. Ours still does more: it reads the load from its book's columns, derives what of the prompt's hashes the book keeps, checks
//! eligibility and runs the policy inside its catch.
//!
//! The "whole" lines add the signals: for theirs the tree's answer and the projection of the loads, without the step that
//! turns the one into the selector's maps, which is private; for ours the same preview with its index. Both sides see the
//! same rows, overlap and load, and must choose the same row before the clock starts.

mod ours;
mod theirs;

use crate::{
    scenario::mix,
    table::{Better, Table, interleaved, nanoseconds_each},
};
use ours::OurScheduler;
use std::hint::black_box;
use theirs::TheirSelector;

/// Tokens per block.
pub(crate) const BLOCK_SIZE: u32 = 16;
/// Blocks of the prompt that is asked for: 2,048 tokens.
pub(crate) const BLOCKS: usize = 128;
const ROUNDS: usize = 21;
/// Rows that one round looks at, over all its selections.
const ROWS_PER_ROUND: usize = 1 << 18;

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

/// Hash `block` of the private prompt `number`.
fn private_hash(number: u64, block: u64) -> u64 {
    mix(number << 20 | block)
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
    selection(table, "custom LOAD policy", Policy::Load, 1_024)
}

fn selection(table: &Table, name: &str, policy: Policy, rows: u64) -> anyhow::Result<()> {
    let mut loads: Vec<_> = (1..=rows).map(RowLoad::of).collect();
    // The one to choose, wherever it stands.
    let best = &mut loads[rows as usize * 2 / 3];
    (best.overlap, best.requests, best.request_blocks) = (127, 1, 1);
    let theirs = TheirSelector::new(policy, &loads)?;
    let mut ours = OurScheduler::new(policy, &loads)?;
    let (their_choice, our_choice) = (theirs.select()?, ours.select()?);
    anyhow::ensure!(their_choice == our_choice, "they choose {their_choice}, we choose {our_choice}");
    anyhow::ensure!(
        ours.select_whole()? == our_choice,
        "our index answers something else than the ready overlap"
    );
    let times = ROWS_PER_ROUND / rows as usize;
    let line = |what: &str, each: [f64; 2]| {
        let what = format!("{what}, {name}, {rows} rows");
        table.line(&what, "µs", Better::Lower, each.map(|ns| ns / 1e3));
    };
    let choice = interleaved(
        ROUNDS,
        || nanoseconds_each(times, |_| drop(black_box(theirs.select()))),
        || nanoseconds_each(times, |_| drop(black_box(ours.select()))),
    );
    line("one selection", choice);
    let whole = interleaved(
        ROUNDS,
        || nanoseconds_each(times, |_| drop(black_box(theirs.select_whole()))),
        || nanoseconds_each(times, |_| drop(black_box(ours.select_whole()))),
    );
    line("  whole", whole);
    Ok(())
}
