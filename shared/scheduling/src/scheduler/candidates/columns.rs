//! The columns that are computed for one decision: each is filled in one run over the eligible rows, as if nothing of the
//! prompt were booked anywhere, and then put right for the rows where something is. Filled by [`super::Candidates`] alone.

use super::{
    super::{eligible::Eligible, fleet_columns::FleetColumns},
    Asked,
};
use switchtower_kv::index::{Overlap, RowSlot};
use switchtower_policy::{CacheColumns, Column, WorkerIdentity, host::CacheWeights};

/// A row on which blocks of the prompt are booked already.
pub(super) struct BookedRow {
    /// Its place among the eligible rows.
    pub(super) row: usize,
    pub(super) position: usize,
    pub(super) blocks: u64,
    /// Those of them that the index does not know of.
    pub(super) awaited: u32,
}

#[derive(Default)]
pub(super) struct Cache {
    device: Vec<f64>,
    /// This and the next two: empty where nobody holds a block off the device.
    host: Vec<f64>,
    disk: Vec<f64>,
    effective: Vec<f64>,
}

#[derive(Default)]
pub(super) struct Load {
    pub(super) raw_prefill_blocks: Vec<f64>,
    pub(super) decode_cost_blocks: Vec<f64>,
}

/// The fleet's columns at the eligible positions, where those are not all.
#[derive(Default)]
pub(super) struct SomeRows {
    pub(super) workers: Vec<WorkerIdentity>,
    pub(super) active_prefill_tokens: Vec<u64>,
    pub(super) active_requests: Vec<u64>,
}

pub(super) const fn same_or_each(values: &[f64], same: f64) -> Column<'_> {
    if values.is_empty() { Column::Same(same) } else { Column::Each(values) }
}

impl Cache {
    /// What the index knows.
    pub(super) fn fill(&mut self, overlap: &Overlap, fleet: &FleetColumns, eligible: &Eligible) {
        fill_tier(&mut self.device, overlap.device(), fleet, eligible);
        self.host.clear();
        self.disk.clear();
        if [overlap.host(), overlap.disk()].into_iter().any(has_any) {
            fill_tier(&mut self.host, overlap.host(), fleet, eligible);
            fill_tier(&mut self.disk, overlap.disk(), fleet, eligible);
        }
    }

    /// Adds what is on its way, and weighs the tiers.
    pub(super) fn put_right(&mut self, weights: CacheWeights, booked: &[BookedRow]) {
        let Self { device, host, disk, effective } = self;
        for booked in booked {
            device[booked.row] += f64::from(booked.awaited);
        }
        effective.clear();
        let tiers = device.iter().zip(host).zip(disk);
        effective
            .extend(tiers.map(|((device, host), disk)| weights.input(*device, *host, *disk).effective()));
    }

    /// Where nobody holds a block off the device, a block is as good as another.
    pub(super) fn columns(&self) -> CacheColumns<'_> {
        let Self { device, host, disk, effective } = self;
        CacheColumns {
            effective: if effective.is_empty() { device } else { effective },
            device,
            host: same_or_each(host, 0.0),
            disk: same_or_each(disk, 0.0),
            shared: Column::Same(0.0),
        }
    }
}

fn has_any(blocks: &[u32]) -> bool {
    bits_of(blocks) > 0
}

/// All bits that are set in any of `blocks`.
fn bits_of(blocks: &[u32]) -> u32 {
    blocks.iter().fold(0, |bits, blocks| bits | blocks)
}

/// A tier's blocks, which the index counts by slot, by eligible row.
fn fill_tier(column: &mut Vec<f64>, by_slot: &[u32], fleet: &FleetColumns, eligible: &Eligible) {
    column.clear();
    let at = |slot: RowSlot| by_slot.get(slot.0 as usize).copied().map_or(0.0, f64::from);
    if !eligible.are_all() {
        column.extend(eligible.positions().iter().map(|position| at(fleet.slots[*position])));
    } else if fleet.are_slots_in_order {
        let blocks = &by_slot[..by_slot.len().min(eligible.len())];
        if bits_of(blocks) >> 31 == 0 {
            // Signed numbers are converted several at a time.
            column.extend(blocks.iter().map(|blocks| f64::from(blocks.cast_signed())));
        } else {
            column.extend(blocks.iter().map(|blocks| f64::from(*blocks)));
        }
        column.resize(eligible.len(), 0.0);
    } else {
        column.extend(fleet.slots.iter().map(|slot| at(*slot)));
    }
}

impl Load {
    /// As if nothing of the prompt were booked anywhere.
    pub(super) fn fill(&mut self, asked: &Asked<'_>, fleet: &FleetColumns, eligible: &Eligible) {
        let (prompt_tokens, prompt_blocks) =
            (asked.request.prompt_tokens as f64, prompt_blocks(asked) as f64);
        let block_size = asked.context.block_size();
        let (by, tokens) = (f64::from(block_size), &fleet.prefill_tokens);
        if block_size.is_power_of_two() {
            // The same result as of a division, in less time.
            let times = by.recip();
            project(&mut self.raw_prefill_blocks, tokens, eligible, |tokens| {
                (tokens + prompt_tokens) * times
            });
        } else {
            project(&mut self.raw_prefill_blocks, tokens, eligible, |tokens| (tokens + prompt_tokens) / by);
        }
        let blocks = &fleet.active_blocks;
        project(&mut self.decode_cost_blocks, blocks, eligible, |blocks| blocks + prompt_blocks);
    }

    /// Takes out what is booked already.
    pub(super) fn put_right(&mut self, asked: &Asked<'_>, fleet: &FleetColumns, booked: &[BookedRow]) {
        for booked in booked {
            let added = prompt_blocks(asked).saturating_sub(booked.blocks);
            self.decode_cost_blocks[booked.row] = fleet.active_blocks[booked.position] + added as f64;
        }
    }
}

fn prompt_blocks(asked: &Asked<'_>) -> u64 {
    asked.request.blocks.len() as u64
}

/// Writes `value` of every eligible row's number.
fn project(column: &mut Vec<f64>, of: &[f64], eligible: &Eligible, value: impl Fn(f64) -> f64) {
    column.clear();
    if eligible.are_all() {
        column.extend(of.iter().map(|number| value(*number)));
    } else {
        column.extend(eligible.positions().iter().map(|position| value(of[*position])));
    }
}

impl SomeRows {
    pub(super) fn gather(&mut self, fleet: &FleetColumns, positions: &[usize]) {
        gather(&mut self.workers, &fleet.workers, positions);
        gather(&mut self.active_prefill_tokens, &fleet.active_prefill_tokens, positions);
        gather(&mut self.active_requests, &fleet.active_requests, positions);
    }
}

fn gather<T: Copy>(column: &mut Vec<T>, all: &[T], positions: &[usize]) {
    column.clear();
    column.extend(positions.iter().map(|position| all[*position]));
}
