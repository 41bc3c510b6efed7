//! The index's map from block hash to node: sorted arrays with gaps, searched by linear probing.
//!
//! Only [`super::holdings`] uses it. It stores positions of nodes, not the nodes, and asks the caller to compare.
//!
//! A slot is 8 bytes: 32 bits of the spread hash (the *tag*) and the node's id. The home position grows with the
//! tag, and slots are kept sorted as numbers (Robin Hood order), so a search for what is absent ends at the first larger
//! tag, and growing is one sequential copy. The tag's first bits choose a shard, which grows alone: a copy is
//! short enough for the CPU's cache, and nobody waits for all of them. So small growth steps are cheap, and the load
//! can stay between 2/3 and 4/5: 10 to 12 bytes per entry. A look-up is one cache miss here and one at the node.
//!
//! How far an entry is from its home is a matter of chance, and a branch on it costs more than the work. So look-ups and
//! insertions treat the [`WINDOW`] slots from the home on all at once, without such a branch; only the few entries that
//! are pushed out of their window are searched for step by step. The processor then goes on to the next look-up while
//! this one waits for memory.

use super::arena::NodeId;
use crate::spread::spread;

/// An empty slot: larger than every entry, since no tag has all bits set.
const EMPTY: u64 = u64::MAX;
/// Slots that are treated at once.
const WINDOW: usize = 8;
/// Spare slots behind the last home, for entries that are pushed past it: every home has a whole window.
const OVERHANG: usize = WINDOW;
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
    /// None, or [`OVERHANG`] more than there are homes, or more.
    slots: Vec<u64>,
    /// How many home positions there are.
    homes: u32,
    entries: u32,
}

const fn tag_of(hash: u64) -> u32 {
    let tag = (spread(hash) >> 32) as u32;
    if tag == u32::MAX { u32::MAX - 1 } else { tag }
}

const fn slot_of(tag: u32, id: NodeId) -> u64 {
    ((tag as u64) << 32) | id as u64
}

const fn tag_in(slot: u64) -> u32 {
    (slot >> 32) as u32
}

const fn id_in(slot: u64) -> NodeId {
    slot as u32
}

const fn shard_of(tag: u32) -> usize {
    (tag >> (u32::BITS - SHARD_BITS)) as usize
}

/// The home position in a shard with so many: the tag behind the shard's bits, as a fraction.
const fn home_among(homes: u32, tag: u32) -> usize {
    (((tag << SHARD_BITS) as u64 * homes as u64) >> 32) as usize
}

/// A bit for each slot with this tag.
fn matching(window: &[u64; WINDOW], tag: u32) -> u32 {
    window.iter().enumerate().fold(0, |bits, (at, slot)| bits | (u32::from(tag_in(*slot) == tag) << at))
}

/// Whether entries with this tag may stand behind the window, too.
const fn goes_on(window: &[u64; WINDOW], tag: u32) -> bool {
    tag_in(window[WINDOW - 1]) <= tag
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
        self.shards.get(shard_of(tag))?.find(tag, is_it).map(|(_, id)| id)
    }

    /// Whether `hash` has a node, as far as its tag tells: `false` is certain, `true` is wrong for one absent hash in 2³²
    /// divided by the number of entries. Looks at no node, and its answer costs no branch.
    pub(super) fn may_hold(&self, hash: u64) -> bool {
        let tag = tag_of(hash);
        self.shards.get(shard_of(tag)).is_some_and(|shard| shard.may_hold(tag))
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
    /// The slots from `home` on; none in a shard without entries.
    fn window(&self, home: usize) -> Option<&[u64; WINDOW]> {
        self.slots.get(home..)?.first_chunk()
    }

    /// The position and the node of the entry that has `tag` and `is_it`.
    #[inline]
    fn find(&self, tag: u32, is_it: impl Fn(NodeId) -> bool) -> Option<(usize, NodeId)> {
        let home = home_among(self.homes, tag);
        let window = self.window(home)?;
        let matching = matching(window, tag);
        if matching != 0 {
            let at = matching.trailing_zeros() as usize % WINDOW;
            let id = id_in(window[at]);
            if is_it(id) {
                return Some((home + at, id));
            }
        } else if !goes_on(window, tag) {
            return None;
        }
        self.search(tag, is_it)
    }

    fn may_hold(&self, tag: u32) -> bool {
        let Some(window) = self.window(home_among(self.homes, tag)) else { return false };
        if goes_on(window, tag) {
            return self.search(tag, |_| true).is_some();
        }
        window.iter().fold(false, |seen, slot| seen | (tag_in(*slot) == tag))
    }

    /// [`Shard::find`] step by step, as far as it takes.
    #[cold]
    #[inline(never)]
    fn search(&self, tag: u32, is_it: impl Fn(NodeId) -> bool) -> Option<(usize, NodeId)> {
        let from_home = self.slots.iter().enumerate().skip(home_among(self.homes, tag));
        from_home
            .take_while(|(_, slot)| tag_in(**slot) <= tag)
            .find(|(_, slot)| tag_in(**slot) == tag && is_it(id_in(**slot)))
            .map(|(at, slot)| (at, id_in(*slot)))
    }

    fn insert(&mut self, tag: u32, id: NodeId, is_it: impl Fn(NodeId) -> bool) -> Result<(), NodeId> {
        if (self.entries + 1) * 5 > self.homes * 4 {
            self.rebuild((self.homes / 5).saturating_mul(6).saturating_add(SMALLEST));
        }
        if let Some((_, known)) = self.find(tag, is_it) {
            return Err(known);
        }
        self.entries += 1;
        // Slots are sorted up to the next gap, and a gap is larger than everything: so the smaller one stays and the
        // larger one moves on, until what moves is the gap.
        let home = home_among(self.homes, tag);
        let mut carried = slot_of(tag, id);
        let (window, behind) = self.slots[home..].split_at_mut(WINDOW);
        for slot in window {
            (*slot, carried) = ((*slot).min(carried), (*slot).max(carried));
        }
        for slot in behind {
            if carried == EMPTY {
                break;
            }
            (*slot, carried) = ((*slot).min(carried), (*slot).max(carried));
        }
        if carried != EMPTY {
            self.slots.reserve_exact(OVERHANG);
            self.slots.push(carried);
        }
        Ok(())
    }

    fn remove(&mut self, tag: u32, id: NodeId) {
        let Some((at, _)) = self.find(tag, |known| known == id) else {
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
