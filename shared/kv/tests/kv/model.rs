//! The index as it would be if nothing had to be fast: per row and block, a set of tiers.

use std::collections::{BTreeMap, BTreeSet};
use switchtower_ids::{SequenceHash, Tier};
use switchtower_kv::event::{KvEvent, SnapshotRun};
use switchtower_kv::index::{PrefixIndex, RowSlot, TierBlocks};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    parent: Option<SequenceHash>,
    tiers: BTreeSet<usize>,
}

type RowModel = BTreeMap<SequenceHash, Held>;

/// Every row's blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    rows: BTreeMap<u32, RowModel>,
}

/// The model refused an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct No;

impl Model {
    pub(crate) fn apply(&mut self, row: u32, event: &KvEvent) -> Result<(), No> {
        let changed = match event {
            KvEvent::Stored { tier, parent, blocks } => self.stored(row, *tier, *parent, blocks)?,
            KvEvent::Removed { tier, blocks } => self.removed(row, *tier, blocks)?,
            KvEvent::Cleared => RowModel::new(),
            KvEvent::Unknown => return Err(No),
        };
        self.rows.insert(row, changed);
        Ok(())
    }

    pub(crate) fn drop_row(&mut self, row: u32) {
        self.rows.remove(&row);
    }

    /// What `PrefixIndex::replace` promises: the new state, or an empty row.
    pub(crate) fn replace(&mut self, row: u32, runs: &[SnapshotRun]) -> Result<(), No> {
        self.drop_row(row);
        let refused = runs.iter().any(|run| self.apply(row, &run.clone().into()).is_err());
        if refused {
            self.drop_row(row);
            return Err(No);
        }
        Ok(())
    }

    pub(crate) fn block_count(&self, row: u32) -> usize {
        self.rows.get(&row).map_or(0, BTreeMap::len)
    }

    pub(crate) fn distinct_blocks(&self) -> usize {
        self.rows.values().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>().len()
    }

    pub(crate) fn overlap(&self, row: u32, query: &[SequenceHash]) -> TierBlocks {
        let mut blocks = TierBlocks::default();
        let Some(held) = self.rows.get(&row) else {
            return blocks;
        };
        for block in query.iter().map_while(|block| held.get(block)) {
            match block.tiers.first() {
                Some(0) => blocks.device += 1,
                Some(1) => blocks.host += 1,
                _ => blocks.disk += 1,
            }
        }
        blocks
    }

    /// Panics where `index` answers or counts otherwise.
    pub(crate) fn assert_equals(
        &self,
        index: &PrefixIndex,
        rows: u32,
        queries: impl Iterator<Item = Vec<SequenceHash>>,
    ) {
        let mut overlap = switchtower_kv::index::Overlap::new();
        for query in queries {
            index.overlap(&query, &mut overlap);
            for row in 0..rows {
                let blocks = overlap.blocks(RowSlot(row));
                assert_eq!(blocks, self.overlap(row, &query), "row {row}, query {query:?}");
                assert_eq!(overlap.touched().contains(&RowSlot(row)), blocks.total() > 0);
            }
        }
        for row in 0..rows {
            assert_eq!(index.row_blocks(RowSlot(row)) as usize, self.block_count(row));
        }
        assert_eq!(index.stats().blocks, self.distinct_blocks());
    }

    fn row(&self, row: u32) -> RowModel {
        self.rows.get(&row).cloned().unwrap_or_default()
    }

    fn stored(
        &self,
        row: u32,
        tier: Tier,
        parent: Option<SequenceHash>,
        blocks: &[SequenceHash],
    ) -> Result<RowModel, No> {
        let mut changed = self.row(row);
        if parent.is_some_and(|parent| !changed.contains_key(&parent)) {
            return Err(No);
        }
        let (mut before, mut named) = (parent, BTreeSet::new());
        for block in blocks {
            let conflict = |row: &RowModel| row.get(block).is_some_and(|held| held.parent != before);
            if !named.insert(*block) || self.rows.values().any(conflict) {
                return Err(No);
            }
            let held = changed.entry(*block).or_insert(Held { parent: before, tiers: BTreeSet::new() });
            held.tiers.insert(tier.index());
            before = Some(*block);
        }
        Ok(changed)
    }

    fn removed(&self, row: u32, tier: Tier, blocks: &[SequenceHash]) -> Result<RowModel, No> {
        let mut changed = self.row(row);
        for block in blocks {
            if let Some(held) = changed.get_mut(block) {
                held.tiers.remove(&tier.index());
            }
        }
        changed.retain(|_, held| !held.tiers.is_empty());
        let closed =
            changed.values().all(|held| held.parent.is_none_or(|parent| changed.contains_key(&parent)));
        closed.then_some(changed).ok_or(No)
    }
}
