//! Which rows may take a request: the host's hard filters, before any policy sees a row.
//!
//! Design invariant 3: a row that is not eligible is never selected.

use crate::{
    Constraints, Exclusions, Pin, Rejection, RowInfo, WorkerTable,
    book::{Book, RowLoad},
};
use switchtower_ids::WorkerId;
use switchtower_policy::KvRouterConfig;

/// When a row counts as overloaded. Unset thresholds never apply, and what is unknown is never over one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OverloadThresholds {
    /// Active blocks as a fraction of the row's blocks, by the book or by the worker's own report.
    pub blocks_fraction: Option<f64>,
    /// Active prefill tokens, by the book.
    pub prefill_tokens: Option<u64>,
}

impl From<&KvRouterConfig> for OverloadThresholds {
    fn from(config: &KvRouterConfig) -> Self {
        Self {
            blocks_fraction: config.overload_blocks_fraction,
            prefill_tokens: config.overload_prefill_tokens,
        }
    }
}

/// The fleet as eligibility sees it.
#[derive(Clone, Copy)]
pub struct Fleet<'a> {
    /// The rows.
    pub table: &'a WorkerTable,
    /// Position in the table → column in the book.
    pub columns: &'a [usize],
    /// What is booked.
    pub book: &'a Book,
    /// When a row is overloaded.
    pub overload: OverloadThresholds,
}

/// Writes the positions of all eligible rows into `eligible`, in table order. The constraints' lists are as
/// [`Constraints::sort`] leaves them.
///
/// # Errors
/// Why there is none: an impossible pin, an overload, or nothing eligible with the counts of what excluded whom.
pub fn eligible_rows(
    fleet: Fleet<'_>,
    constraints: &Constraints,
    eligible: &mut Vec<usize>,
) -> Result<(), Rejection> {
    eligible.clear();
    if let Some(pin) = constraints.pin {
        check_pin(fleet.table, constraints, pin)?;
    }
    let mut exclusions = Exclusions::default();
    let mut overloaded_row = None;
    let rows = fleet.table.rows();
    // A pin looks at its worker's rows alone: thousands of pinned waiters must not look at thousands of rows each.
    let asked = constraints.pin.map_or(0..rows.len(), |pin| fleet.table.positions_of(pin.worker));
    exclusions.not_pinned = u32::try_from(rows.len() - asked.len()).unwrap_or(u32::MAX);
    for index in asked {
        match fleet.exclusion(constraints, index, &rows[index]) {
            None => eligible.push(index),
            Some(reason) => {
                *reason(&mut exclusions) += 1;
                if exclusions.overloaded == 1 && overloaded_row.is_none() {
                    overloaded_row = Some(rows[index].row);
                }
            }
        }
    }
    match (eligible.is_empty(), overloaded_row, constraints.pin) {
        (false, ..) => Ok(()),
        (true, Some(row), Some(_)) => Err(Rejection::PinnedOverloaded(row)),
        (true, Some(_), None) => Err(Rejection::AllOverloaded { overloaded: exclusions.overloaded }),
        (true, None, _) => Err(Rejection::NothingEligible(exclusions)),
    }
}

/// A pin that can never hold is the caller's mistake, not the fleet's.
fn check_pin(table: &WorkerTable, constraints: &Constraints, pin: Pin) -> Result<(), Rejection> {
    let impossible = |reason| Err(Rejection::ImpossiblePin { worker: pin.worker, reason });
    if table.of_worker(pin.worker).is_empty() {
        return impossible("no worker with this id serves the model");
    }
    if !constraints.allows(pin.worker) {
        return impossible("it is not among the request's allowed workers");
    }
    let Some(rank) = pin.rank else { return Ok(()) };
    if !table.has_rank(pin.worker, rank) {
        return impossible("it does not have the pinned rank");
    }
    if constraints.ranks.as_ref().is_some_and(|ranks| !ranks.contains(&rank.0)) {
        return impossible("the pinned rank is outside the request's rank bounds");
    }
    Ok(())
}

/// The counter of the rule that excludes a row.
type Reason = fn(&mut Exclusions) -> &mut u32;

impl Fleet<'_> {
    fn exclusion(&self, constraints: &Constraints, index: usize, info: &RowInfo) -> Option<Reason> {
        let worker = info.row.worker;
        if constraints.pin.is_some_and(|pin| !pin.matches(info)) {
            return Some(|counts| &mut counts.not_pinned);
        }
        if !constraints.allows(worker) {
            return Some(|counts| &mut counts.not_allowed);
        }
        if constraints.ranks.as_ref().is_some_and(|ranks| !ranks.contains(&info.row.rank.0)) {
            return Some(|counts| &mut counts.rank_bounds);
        }
        let required = &constraints.required_taints;
        if required.len() > info.taints.len() || !required.iter().all(|taint| info.has_taint(taint)) {
            return Some(|counts| &mut counts.missing_taint);
        }
        if info.draining {
            return Some(|counts| &mut counts.draining);
        }
        if constraints.failed.binary_search(&(worker, info.incarnation)).is_ok() {
            return Some(|counts| &mut counts.failed_before);
        }
        self.is_overloaded(index).then_some(|counts| &mut counts.overloaded)
    }

    /// Whether the row at `index` is eligible under `constraints`, whose lists are sorted.
    #[must_use]
    pub fn accepts(&self, constraints: &Constraints, index: usize) -> bool {
        let info = self.table.rows().get(index);
        info.is_some_and(|info| self.exclusion(constraints, index, info).is_none())
    }

    fn is_overloaded(&self, index: usize) -> bool {
        let Some(info) = self.table.rows().get(index) else {
            return false;
        };
        let load = self.load(index);
        let over_tokens =
            self.overload.prefill_tokens.is_some_and(|limit| load.active_prefill_tokens > limit);
        let over_blocks = self.overload.blocks_fraction.is_some_and(|fraction| {
            let booked =
                info.total_blocks.is_some_and(|total| exceeds(load.active_blocks(), fraction, total));
            let report = self.table.last_report(index);
            booked || report.is_some_and(|report| exceeds(report.blocks_used, fraction, report.blocks_total))
        });
        over_tokens || over_blocks
    }

    /// What is booked on the row at `index`.
    #[must_use]
    pub fn load(&self, index: usize) -> RowLoad {
        self.columns.get(index).map_or_else(RowLoad::default, |column| *self.book.load_at(*column))
    }

    /// Whether the row's active prefill tokens exceed `threshold` × its batch capacity; no, where that is unknown.
    #[must_use]
    pub fn is_busy(&self, index: usize, threshold: f64) -> bool {
        let capacity = self.table.rows().get(index).and_then(|info| info.max_batch_tokens);
        capacity.is_some_and(|tokens| exceeds(self.load(index).active_prefill_tokens, threshold, tokens))
    }
}

/// A capacity of 0 is a report without content: unknown, so never exceeded.
fn exceeds(amount: u64, fraction: f64, capacity: u64) -> bool {
    capacity > 0 && amount as f64 > fraction * capacity as f64
}

impl Constraints {
    fn allows(&self, worker: WorkerId) -> bool {
        self.allowed_workers.is_empty() || self.allowed_workers.binary_search(&worker).is_ok()
    }
}

impl Pin {
    fn matches(self, info: &RowInfo) -> bool {
        info.row.worker == self.worker && self.rank.is_none_or(|rank| rank == info.row.rank)
    }
}

#[cfg(test)]
mod tests;
