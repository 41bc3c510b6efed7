//! Sets of rows, each kept once however many blocks are held by just these rows.
//!
//! Only [`super::holdings`] uses it. The blocks of a shared prefix have the same holders, so thousands of nodes
//! name one set; equal sets have equal ids, so "the same rows?" is one comparison.

use crate::spread::spread;
use hashbrown::HashTable;

pub(super) type SetId = u32;

#[derive(Debug, Default)]
struct RowSet {
    /// Sorted, two or more; empty while the entry is unused.
    rows: Box<[u32]>,
    /// Sum of the rows' spread numbers: the set's own hash, cheap to change by one row.
    sum: u64,
    uses: u32,
}

/// The last step from one set to a neighbour: a chain of blocks takes the same step at every block.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: SetId,
    row: u32,
    to: SetId,
}

#[derive(Debug, Default)]
pub(super) struct RowSets {
    sets: Vec<RowSet>,
    unused: Vec<SetId>,
    by_sum: HashTable<SetId>,
    last_add: Option<Step>,
    last_remove: Option<Step>,
    bytes: usize,
}

/// What is left of a set without one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// A single row needs no set.
    One(u32),
    /// A set, with one use more.
    Set(SetId),
}

fn sum_of(row: u32) -> u64 {
    spread(u64::from(row) + 1)
}

impl RowSets {
    pub(super) fn rows(&self, set: SetId) -> &[u32] {
        &self.sets[set as usize].rows
    }

    pub(super) fn contains(&self, set: SetId, row: u32) -> bool {
        self.rows(set).binary_search(&row).is_ok()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.sets.capacity() * size_of::<RowSet>() + self.by_sum.capacity() * size_of::<SetId>()
    }

    /// The set of two rows, with one use more.
    pub(super) fn pair(&mut self, a: u32, b: u32) -> SetId {
        let rows = [a.min(b), a.max(b)];
        self.intern(&rows, sum_of(a).wrapping_add(sum_of(b)))
    }

    /// `set` and a `row` that is not in it, with one use more. The caller releases `set`.
    pub(super) fn with(&mut self, set: SetId, row: u32) -> SetId {
        if let Some(step) = self.last_add.filter(|step| (step.from, step.row) == (set, row)) {
            self.sets[step.to as usize].uses += 1;
            return step.to;
        }
        let mut rows = self.rows(set).to_vec();
        let at = rows.partition_point(|known| *known < row);
        rows.insert(at, row);
        let to = self.intern(&rows, self.sets[set as usize].sum.wrapping_add(sum_of(row)));
        self.last_add = Some(Step { from: set, row, to });
        to
    }

    /// `set` without its member `row`. The caller releases `set`.
    pub(super) fn without(&mut self, set: SetId, row: u32) -> Rest {
        if let Some(step) = self.last_remove.filter(|step| (step.from, step.row) == (set, row)) {
            self.sets[step.to as usize].uses += 1;
            return Rest::Set(step.to);
        }
        let rows: Vec<u32> = self.rows(set).iter().copied().filter(|known| *known != row).collect();
        if let [last] = rows[..] {
            return Rest::One(last);
        }
        let to = self.intern(&rows, self.sets[set as usize].sum.wrapping_sub(sum_of(row)));
        self.last_remove = Some(Step { from: set, row, to });
        Rest::Set(to)
    }

    /// One use of `set` less; without any it is forgotten.
    pub(super) fn release(&mut self, set: SetId) {
        let entry = &mut self.sets[set as usize];
        entry.uses -= 1;
        if entry.uses > 0 {
            return;
        }
        let RowSet { rows, sum, .. } = std::mem::take(entry);
        self.bytes -= size_of_val(&*rows);
        if let Ok(found) = self.by_sum.find_entry(sum, |other| *other == set) {
            found.remove();
        }
        let mentions = |step: &Step| step.from == set || step.to == set;
        self.last_add = self.last_add.filter(|step| !mentions(step));
        self.last_remove = self.last_remove.filter(|step| !mentions(step));
        self.unused.push(set);
    }

    fn intern(&mut self, rows: &[u32], sum: u64) -> SetId {
        let found = self.by_sum.find(sum, |set| *self.sets[*set as usize].rows == *rows).copied();
        if let Some(set) = found {
            self.sets[set as usize].uses += 1;
            return set;
        }
        let entry = RowSet { rows: rows.into(), sum, uses: 1 };
        self.bytes += size_of_val(rows);
        let set = match self.unused.pop() {
            Some(set) => {
                self.sets[set as usize] = entry;
                set
            }
            None => {
                self.sets.push(entry);
                (self.sets.len() - 1) as SetId
            }
        };
        self.by_sum.insert_unique(sum, set, |set| self.sets[*set as usize].sum);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_have_equal_ids_whatever_the_way_to_them() {
        let mut sets = RowSets::default();
        let (a, b) = (sets.pair(1, 2), sets.pair(3, 2));
        let (via_a, via_b) = (sets.with(a, 3), sets.with(b, 1));
        assert_eq!(via_a, via_b);
        assert_eq!(sets.rows(via_a), [1, 2, 3]);
        assert_eq!(sets.without(via_a, 3), Rest::Set(a));
        assert_eq!(sets.without(a, 1), Rest::One(2));
        assert!(sets.contains(a, 2) && !sets.contains(a, 3));
    }

    #[test]
    fn unused_sets_are_forgotten_and_remembered_steps_with_them() {
        let mut sets = RowSets::default();
        let pair = sets.pair(1, 2);
        let three = sets.with(pair, 3);
        sets.release(three);
        let four = sets.with(pair, 4);
        assert_eq!(four, three, "the place is used again");
        assert_eq!(sets.rows(four), [1, 2, 4]);
        let again = sets.with(pair, 3);
        assert_eq!(sets.rows(again), [1, 2, 3]);
        for set in [pair, four, again] {
            sets.release(set);
        }
        assert_eq!((sets.bytes, sets.by_sum.len()), (0, 0));
    }
}
