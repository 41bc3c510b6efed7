//! The indexes' memory per (row, block) pair, the means to remove a block included.
//!
//! Tables that double are full or half empty by luck of the number of blocks, so the mean is taken over sizes spread
//! evenly over one doubling. All events are freed when the bytes are counted.

use crate::{
    allocation,
    index::TheirIndex,
    scenario::Scenario,
    table::{Better, Table},
};
use switchtower_kv::index::{IndexLimits, PrefixIndex};

/// Prompts per row: the smallest, and three more up to its double.
const PROMPTS_PER_ROW: [u64; 4] = [100, 119, 141, 168];
const ROWS: u64 = 64;
/// Small, because what it takes counts as theirs.
const CHANNEL: usize = 64;

pub(crate) fn compare(table: &Table) -> anyhow::Result<()> {
    for holders in [1, 4] {
        let mut sums = [0.0; 2];
        for prompts_per_row in PROMPTS_PER_ROW {
            let scenario = Scenario { rows: ROWS, prompts: ROWS * prompts_per_row / holders, holders };
            let [theirs, ours] = bytes_per_pair(scenario)?;
            sums = [sums[0] + theirs, sums[1] + ours];
        }
        let means = sums.map(|sum| sum / PROMPTS_PER_ROW.len() as f64);
        let what = format!("index: memory per (row, block), every prompt on {holders} row(s)");
        table.line(&what, "B", Better::Lower, means);
    }
    Ok(())
}

fn bytes_per_pair(scenario: Scenario) -> anyhow::Result<[f64; 2]> {
    let prompts = scenario.prompts();
    let (theirs, their_bytes) = allocation::count(|| {
        let index = TheirIndex::start(flume::bounded(CHANNEL));
        scenario.their_events(&prompts).try_for_each(|event| index.send(event))?;
        index.flush()?;
        anyhow::Ok(index)
    });
    drop(theirs?);
    let (ours, our_bytes) = allocation::count(|| {
        let mut index = PrefixIndex::new(IndexLimits::default());
        let applied = scenario.our_events(&prompts).try_for_each(|(slot, event)| index.apply(slot, &event));
        applied.map(|()| index)
    });
    assert_eq!(ours?.stats().pairs, scenario.pairs());
    Ok([their_bytes, our_bytes].map(|bytes| bytes as f64 / scenario.pairs() as f64))
}
