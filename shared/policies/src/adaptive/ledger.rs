//! What each row was given to compute, with a memory that fades. Kept by `adaptive` alone; knows nothing of costs.

use switchtower_policy::WorkerIdentity;

/// Beyond this the unit is made 1 again, far from where numbers end.
const UNIT_MAX: f64 = 1e100;

struct Account {
    row: WorkerIdentity,
    /// In units of [`Ledger::unit`].
    given: f64,
}

/// Tokens given per row, each weighing less with every charge that follows it.
///
/// Instead of shrinking every account at every charge, the unit in which new charges are written grows. An account is
/// opened by its first charge; those that have faded below one token are closed whenever another is opened, so there
/// are no more of them than rows that were charged lately.
pub(super) struct Ledger {
    /// Sorted by row.
    accounts: Vec<Account>,
    unit: f64,
    /// Charges per row after which 1/e is left.
    memory: f64,
}

impl Ledger {
    /// An empty ledger with a memory of `memory` charges per row, at least 1.
    pub(super) const fn new(memory: f64) -> Self {
        Self { accounts: Vec::new(), unit: 1.0, memory: memory.max(1.0) }
    }

    /// Gives `tokens` to `row`, one of `rows` rows.
    pub(super) fn charge(&mut self, row: WorkerIdentity, tokens: f64, rows: usize) {
        self.unit *= 1.0 + 1.0 / (self.memory * rows.max(1) as f64);
        if self.unit > UNIT_MAX {
            self.accounts.iter_mut().for_each(|account| account.given /= self.unit);
            self.unit = 1.0;
        }
        let given = tokens * self.unit;
        match self.find(row) {
            Ok(at) => self.accounts[at].given += given,
            Err(_) => {
                self.accounts.retain(|account| account.given >= self.unit);
                let at = self.find(row).unwrap_or_else(|place| place);
                self.accounts.insert(at, Account { row, given });
            }
        }
    }

    fn find(&self, row: WorkerIdentity) -> Result<usize, usize> {
        self.accounts.binary_search_by_key(&row, |account| account.row)
    }

    /// Reads accounts, quickest in the order of rows.
    pub(super) const fn reader(&self) -> Reader<'_> {
        Reader { ledger: self, next: 0 }
    }
}

/// See [`Ledger::reader`].
pub(super) struct Reader<'a> {
    ledger: &'a Ledger,
    /// The account after the last one read.
    next: usize,
}

impl Reader<'_> {
    /// Tokens that `row` was given, as far as they are remembered.
    #[inline]
    pub(super) fn given(&mut self, row: WorkerIdentity) -> f64 {
        match self.ledger.accounts.get(self.next) {
            Some(account) if account.row == row => {
                self.next += 1;
                account.given / self.ledger.unit
            }
            _ => self.search(row),
        }
    }

    #[cold]
    fn search(&mut self, row: WorkerIdentity) -> f64 {
        let Ledger { accounts, unit, .. } = self.ledger;
        let at = self.ledger.find(row);
        self.next = at.map_or_else(|place| place, |found| found + 1);
        at.ok().and_then(|at| accounts.get(at)).map_or(0.0, |account| account.given / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn row(worker_id: u64) -> WorkerIdentity {
        WorkerIdentity { worker_id, dp_rank: 0 }
    }

    fn given(ledger: &Ledger, rows: &[u64]) -> Vec<f64> {
        let mut reader = ledger.reader();
        rows.iter().map(|worker| reader.given(row(*worker)).round()).collect()
    }

    #[test]
    fn charges_are_read_in_any_order_and_rows_without_any_were_given_nothing() {
        let mut ledger = Ledger::new(1e9);
        for (worker, tokens) in [(5, 50.0), (1, 10.0), (3, 30.0), (1, 1.0)] {
            ledger.charge(row(worker), tokens, 3);
        }
        assert_eq!(given(&ledger, &[1, 2, 3, 4, 5, 6]), [11.0, 0.0, 30.0, 0.0, 50.0, 0.0]);
        assert_eq!(given(&ledger, &[6, 5, 1, 4, 3]), [0.0, 50.0, 11.0, 0.0, 30.0]);
    }

    #[test]
    fn a_charge_fades_to_a_part_in_e_after_the_memory_in_charges_per_row() {
        let mut ledger = Ledger::new(100.0);
        ledger.charge(row(1), 1_000.0, 4);
        (0..400).for_each(|_| ledger.charge(row(2), 0.0, 4));
        assert_eq!(given(&ledger, &[1]), [368.0]);
    }

    #[test]
    fn accounts_that_faded_are_closed_and_the_unit_never_overflows() {
        let mut ledger = Ledger::new(1.0);
        for worker in 0..10_000 {
            ledger.charge(row(worker), 1_000.0, 2);
            assert!(ledger.accounts.len() < 30 && ledger.unit <= UNIT_MAX);
        }
        assert_eq!(given(&ledger, &[9_999, 9_998]), [1_000.0, 667.0]);
    }
}
