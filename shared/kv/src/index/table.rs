//! The index's map from block hash to node: sorted arrays with gaps, searched by linear probing.
//!
//! Only [`super::holdings`] uses it. It stores positions of nodes, not the nodes, and asks the caller to compare.
//!
//! A slot is 8 bytes: 32 bits of the spread hash (the *tag*) and the node's id. The home position grows with the
//! tag, and slots are kept sorted by tag (Robin Hood order), so a search for what is absent ends at the first larger
//! tag, and growing is one sequential copy. The tag's first bits choose a shard, which grows alone: a copy is
//! short enough for the CPU's cache, and nobody waits for all of them. So small growth steps are cheap, and the load
//! can stay between 2/3 and 4/5: 10 to 12 bytes per entry. A look-up is one cache miss here and one at the node.

use super::arena::NodeId;
use crate::spread::spread;

/// An empty slot. Ids are stored plus one, so that no entry looks like it.
const EMPTY: u64 = 0;
/// Spare slots behind the last home, for entries that are pushed past it.
const OVERHANG: usize = 8;
/// Homes of a shard that has just got its first entry.
const SMALLEST: u32 = 8;
const SHARD_BITS: u32 = 8;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct HashTable {
    /// None before the first entry.
    shards: Vec<Shard>,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    slots: Vec<u64>,
    /// How many home positions there are.
    homes: u32,
    entries: u32,
}

const fn tag_of(hash: u64) -> u32 {
    (spread(hash) >> 32) as u32
}

const fn slot_of(tag: u32, id: NodeId) -> u64 {
    ((tag as u64) << 32) | (id as u64 + 1)
}

const fn tag_in(slot: u64) -> u32 {
    (slot >> 32) as u32
}

const fn id_in(slot: u64) -> NodeId {
    (slot as u32).wrapping_sub(1)
}

const fn shard_of(tag: u32) -> usize {
    (tag >> (u32::BITS - SHARD_BITS)) as usize
}

/// The home position in a shard with so many: the tag behind the shard's bits, as a fraction.
const fn home_among(homes: u32, tag: u32) -> usize {
    (((tag << SHARD_BITS) as u64 * homes as u64) >> 32) as usize
}

impl HashTable {
    pub(super) fn bytes(&self) -> usize {
        let slots: usize = self.shards.iter().map(|shard| shard.slots.capacity()).sum();
        slots * size_of::<u64>() + self.shards.capacity() * size_of::<Shard>()
    }

    /// Reads the home slots of `hashes`, so that look-ups that follow find them in the CPU's cache. These reads do
    /// not wait for each other, unlike those of look-ups, which stop and compare.
    pub(super) fn warm(&self, hashes: impl Iterator<Item = u64>) {
        let home_slot = |hash| {
            let tag = tag_of(hash);
            let shard = self.shards.get(shard_of(tag))?;
            shard.slots.get(home_among(shard.homes, tag)).copied()
        };
        std::hint::black_box(hashes.fold(EMPTY, |seen, hash| seen ^ home_slot(hash).unwrap_or(EMPTY)));
    }

    /// The node of `hash`; `is_it` tells whether a node with the same tag really has that hash.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let tag = tag_of(hash);
        let shard = self.shards.get(shard_of(tag))?;
        let (_, found) = shard.search(tag, is_it);
        found
    }

    /// Adds `id` as the node of `hash`. If the hash has a node already, nothing changes and that node is the error.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        id: NodeId,
        is_it: impl Fn(NodeId) -> bool,
    ) -> Result<(), NodeId> {
        if self.shards.is_empty() {
            self.shards = vec![Shard::default(); 1 << SHARD_BITS];
        }
        let tag = tag_of(hash);
        self.shards[shard_of(tag)].insert(tag, id, is_it)
    }

    /// Removes the entry of `hash` that names `id`.
    pub(super) fn remove(&mut self, hash: u64, id: NodeId) {
        let tag = tag_of(hash);
        if let Some(shard) = self.shards.get_mut(shard_of(tag)) {
            shard.remove(tag, id);
        }
    }
}

impl Shard {
    /// The node that has `tag` and `is_it`, and the position of its slot; or none, and where it would belong.
    fn search(&self, tag: u32, is_it: impl Fn(NodeId) -> bool) -> (usize, Option<NodeId>) {
        let home = home_among(self.homes, tag);
        let candidates = self.slots.get(home..).unwrap_or_default();
        for (offset, slot) in candidates.iter().enumerate() {
            if *slot == EMPTY || tag_in(*slot) > tag {
                return (home + offset, None);
            }
            if tag_in(*slot) == tag && is_it(id_in(*slot)) {
                return (home + offset, Some(id_in(*slot)));
            }
        }
        (self.slots.len(), None)
    }

    fn insert(&mut self, tag: u32, id: NodeId, is_it: impl Fn(NodeId) -> bool) -> Result<(), NodeId> {
        if (self.entries + 1) * 5 > self.homes * 4 {
            self.rebuild((self.homes / 5).saturating_mul(6).saturating_add(SMALLEST));
        }
        let (at, found) = self.search(tag, is_it);
        if let Some(known) = found {
            return Err(known);
        }
        // Entries behind it move one on, up to the next gap.
        let mut carried = slot_of(tag, id);
        for slot in self.slots.iter_mut().skip(at) {
            carried = std::mem::replace(slot, carried);
            if carried == EMPTY {
                break;
            }
        }
        if carried != EMPTY {
            self.slots.reserve_exact(OVERHANG);
            self.slots.push(carried);
        }
        self.entries += 1;
        Ok(())
    }

    fn remove(&mut self, tag: u32, id: NodeId) {
        let (at, Some(_)) = self.search(tag, |known| known == id) else {
            return;
        };
        // Entries behind it that are not at home move one back.
        let displaced = |end: usize| {
            let slot = self.slots.get(end).copied().unwrap_or(EMPTY);
            slot != EMPTY && home_among(self.homes, tag_in(slot)) < end
        };
        let mut end = at + 1;
        while displaced(end) {
            end += 1;
        }
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = EMPTY;
        self.entries -= 1;
        if self.entries == 0 {
            *self = Self::default();
        } else if self.homes > SMALLEST && self.entries < self.homes / 4 {
            self.rebuild((self.homes / 2).max(SMALLEST));
        }
    }

    /// Copies the entries, which are in tag order, to a table with `homes` positions.
    fn rebuild(&mut self, homes: u32) {
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; homes as usize + OVERHANG]);
        self.homes = homes;
        let mut next = 0;
        // Without a branch on gaps, which nobody can predict: a gap is written where the next entry will be.
        for slot in old {
            let taken = slot != EMPTY;
            let at = if taken { home_among(homes, tag_in(slot)).max(next) } else { next };
            match self.slots.get_mut(at) {
                Some(place) => *place = slot,
                None if taken => self.slots.push(slot),
                None => {}
            }
            next = at + usize::from(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Hashes whose tags are small and often equal: `spread`, undone. (`INVERSE` × the multiplier = 1, wrapping.)
    fn close(key: u64) -> u64 {
        const INVERSE: u64 = 0xF1DE_83E1_9937_733D;
        let hash = (((key / 3) << 32) | (key % 3)).wrapping_mul(INVERSE);
        assert_eq!(u64::from(tag_of(hash)), key / 3);
        hash
    }

    fn entries(table: &HashTable) -> usize {
        table.shards.iter().map(|shard| shard.entries as usize).sum()
    }

    proptest! {
        /// Against a plain map, half of the keys in one shard and close together there.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((any::<bool>(), 0_u64..300, any::<bool>()), 0..1500)) {
            let mut table = HashTable::default();
            let mut hashes: Vec<u64> = Vec::new();
            let mut model: BTreeMap<u64, NodeId> = BTreeMap::new();
            for (insert, key, far) in steps {
                let hash = if far { key } else { close(key) };
                if insert {
                    let id = hashes.len() as NodeId;
                    hashes.push(hash);
                    let added = table.insert(hash, id, |at| hashes[at as usize] == hash);
                    prop_assert_eq!(added.err(), model.get(&hash).copied());
                    model.entry(hash).or_insert(id);
                } else if let Some(id) = model.remove(&hash) {
                    table.remove(hash, id);
                }
                prop_assert_eq!(entries(&table), model.len());
            }
            for key in (0..300).flat_map(|key| [key, close(key)]) {
                let found = table.find(key, |at| hashes[at as usize] == key);
                prop_assert_eq!(found, model.get(&key).copied());
            }
        }
    }

    #[test]
    fn an_empty_table_finds_nothing_and_removes_nothing() {
        let mut table = HashTable::default();
        assert_eq!(table.find(3, |_| true), None);
        table.remove(3, 0);
        assert_eq!(table.bytes(), 0);
    }

    #[test]
    fn entries_past_the_last_home_are_kept() {
        let mut table = HashTable::default();
        for id in 0..200 {
            assert_eq!(table.insert(0, id, |_| false), Ok(()));
        }
        table.remove(0, 150);
        assert_eq!(table.find(0, |id| id == 199), Some(199));
        assert_eq!(table.find(0, |id| id == 150), None);
    }
}
