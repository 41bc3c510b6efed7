//! Runs the same work on `dynamo-kv-router` and on Switchtower, one after the other in every round, and prints the
//! medians and their ratio. README.md says what is compared and what is not.
//!
//! A program for people who want to know; nothing calls it, no test depends on it. `cargo run --release`.

mod allocation;
mod index;
mod lifecycle;
mod memory;
mod scenario;
mod selection;
mod table;

use table::Table;

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;

fn main() -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its figures mean nothing, use `cargo run --release`");
    }
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let runs = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let table = Table::start();
    if runs("index") {
        index::compare(&table)?;
    }
    if runs("memory") {
        memory::compare(&table)?;
    }
    if runs("selection") {
        selection::compare(&table)?;
    }
    if runs("lifecycle") {
        lifecycle::compare(&table)?;
    }
    Ok(())
}
