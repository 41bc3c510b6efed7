//! The index's map from block hash to node: sorted buckets with gaps, searched by linear probing.
//!
//! Only [`super::holdings`] uses it. It stores positions of nodes, not the nodes, and asks the caller to compare.
//!
//! A slot is 8 bytes: 32 bits of the spread hash (the *tag*) and the node's id; a bucket is 8 slots in one cache line.
//! The home bucket grows with the tag, a full bucket's largest slots go to the next one, and slots are kept sorted as
//! numbers (Robin Hood order). So a search for what is absent ends at the first larger tag, and growing is one
//! sequential copy. The tag's first bits choose a shard, which grows alone: a copy is short enough for the CPU's cache,
//! and nobody waits for all of them. So small growth steps are cheap, and the load can stay between 5/8 and 4/5: 10 to
//! 12.5 bytes per entry. A look-up is one cache miss here and one at the node.
//!
//! Where in its bucket an entry is, is a matter of chance, and a branch on it costs more than the work. So look-ups
//! and insertions treat the slots of a bucket all at once. The only branches are on what is usual: that a bucket is not
//! left. The processor then goes on to the next look-up while this one waits for memory.

use super::arena::NodeId;
use crate::spread::spread;

/// An empty slot: larger than every entry, since no tag has all bits set.
const EMPTY: u64 = u64::MAX;
const BUCKET: usize = 8;
const SHARD_BITS: u32 = 8;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct HashTable {
    /// None without entries.
    shards: Vec<Shard>,
    entries: usize,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    /// One more than there are homes, or as many as the entries took that were pushed past the last home.
    buckets: Vec<Bucket>,
    /// How many home buckets there are.
    homes: u32,
    entries: u32,
}

/// Sorted, and therefore its empty slots are the last ones.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([u64; BUCKET]);

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

/// The home bucket in a shard with so many: the tag behind the shard's bits, as a fraction.
const fn home_among(homes: u32, tag: u32) -> usize {
    (((tag << SHARD_BITS) as u64 * homes as u64) >> 32) as usize
}

impl HashTable {
    pub(super) fn bytes(&self) -> usize {
        let buckets: usize = self.shards.iter().map(|shard| shard.buckets.capacity()).sum();
        buckets * size_of::<Bucket>() + self.shards.capacity() * size_of::<Shard>()
    }

    /// Reads the home buckets of `hashes`, and those behind them, which one insertion of five reaches, so that what
    /// follows finds them in the CPU's cache. These reads do not wait for each other, unlike those of look-ups, which stop
    /// and compare.
    pub(super) fn warm(&self, hashes: impl Iterator<Item = u64>) {
        let first_slots = |hash| {
            let tag = tag_of(hash);
            let shard = self.shards.get(shard_of(tag))?;
            let home = home_among(shard.homes, tag);
            Some(shard.buckets.get(home)?.0[0] ^ shard.buckets.get(home + 1)?.0[0])
        };
        std::hint::black_box(hashes.fold(EMPTY, |seen, hash| seen ^ first_slots(hash).unwrap_or(EMPTY)));
    }

    /// The node of `hash`; `is_it` tells whether a node with the same tag really has that hash.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let tag = tag_of(hash);
        self.shards.get(shard_of(tag))?.find(tag, is_it).map(|(_, id)| id)
    }

    /// Whether `hash` has a node, as far as its tag tells: `false` is certain, `true` is wrong for an absent hash with
    /// a chance of one in 2³² for every entry. Looks at no node.
    pub(super) fn may_hold(&self, hash: u64) -> bool {
        self.find(hash, |_| true).is_some()
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
        self.shards[shard_of(tag)].insert(tag, id, is_it)?;
        self.entries += 1;
        Ok(())
    }

    /// Removes the entry of `hash` that names `id`.
    pub(super) fn remove(&mut self, hash: u64, id: NodeId) {
        let tag = tag_of(hash);
        let shard = self.shards.get_mut(shard_of(tag));
        if shard.is_some_and(|shard| shard.remove(tag, id)) {
            self.entries -= 1;
            if self.entries == 0 {
                *self = Self::default();
            }
        }
    }
}

impl Bucket {
    const VACANT: Self = Self([EMPTY; BUCKET]);

    /// A bit for each slot with this tag.
    fn matching(&self, tag: u32) -> u32 {
        self.0.iter().enumerate().fold(0, |bits, (at, slot)| bits | (u32::from(tag_in(*slot) == tag) << at))
    }

    /// Whether entries with this tag may stand in the next bucket, too.
    const fn is_left_by(&self, tag: u32) -> bool {
        tag_in(self.0[BUCKET - 1]) <= tag
    }

    /// Puts `slot` in its place and returns the largest one, which there is no place for any more: an empty one, as a
    /// rule.
    fn put(&mut self, slot: u64) -> u64 {
        let mut carried = slot;
        for place in &mut self.0 {
            (*place, carried) = ((*place).min(carried), (*place).max(carried));
        }
        carried
    }

    /// Takes out the slot at `place` and puts `last` behind all others.
    fn take(&mut self, place: usize, last: u64) {
        self.0.copy_within(place + 1.., place);
        self.0[BUCKET - 1] = last;
    }
}

impl Shard {
    /// The entry that has `tag` and `is_it`: its bucket and its place there, and its node.
    fn find(&self, tag: u32, is_it: impl Fn(NodeId) -> bool) -> Option<((usize, usize), NodeId)> {
        let home = home_among(self.homes, tag);
        for (offset, bucket) in self.buckets.get(home..)?.iter().enumerate() {
            let mut matching = bucket.matching(tag);
            while matching != 0 {
                let place = matching.trailing_zeros() as usize % BUCKET;
                let id = id_in(bucket.0[place]);
                if is_it(id) {
                    return Some(((home + offset, place), id));
                }
                matching &= matching - 1;
            }
            if !bucket.is_left_by(tag) {
                break;
            }
        }
        None
    }

    fn insert(&mut self, tag: u32, id: NodeId, is_it: impl Fn(NodeId) -> bool) -> Result<(), NodeId> {
        if (self.entries as usize + 1) * 5 > self.homes as usize * BUCKET * 4 {
            self.rebuild((self.homes / 4).saturating_mul(5).saturating_add(self.homes % 4 + 1));
        }
        if let Some((_, known)) = self.find(tag, is_it) {
            return Err(known);
        }
        self.entries += 1;
        let mut carried = slot_of(tag, id);
        for bucket in self.buckets.iter_mut().skip(home_among(self.homes, tag)) {
            carried = bucket.put(carried);
            if carried == EMPTY {
                return Ok(());
            }
        }
        self.push(carried);
        Ok(())
    }

    /// Puts `slot` into a new bucket behind all others.
    #[cold]
    fn push(&mut self, slot: u64) {
        let mut bucket = Bucket::VACANT;
        bucket.put(slot);
        self.buckets.reserve_exact(1);
        self.buckets.push(bucket);
    }

    /// Whether there was such an entry.
    fn remove(&mut self, tag: u32, id: NodeId) -> bool {
        let Some(((mut at, mut place), _)) = self.find(tag, |known| known == id) else {
            return false;
        };
        loop {
            // The next bucket's first entry moves back if it is not at home.
            let next = self.buckets.get(at + 1).map_or(EMPTY, |bucket| bucket.0[0]);
            let stays = next == EMPTY || home_among(self.homes, tag_in(next)) > at;
            self.buckets[at].take(place, if stays { EMPTY } else { next });
            if stays {
                break;
            }
            (at, place) = (at + 1, 0);
        }
        self.entries -= 1;
        if self.entries == 0 {
            *self = Self::default();
        } else if self.homes > 1 && (self.entries as usize) < self.homes as usize * BUCKET / 4 {
            self.rebuild(self.homes / 2);
        }
        true
    }

    /// Copies the entries, which are in tag order, to a table with `homes` home buckets.
    fn rebuild(&mut self, homes: u32) {
        let old = std::mem::replace(&mut self.buckets, vec![Bucket::VACANT; homes as usize + 1]);
        self.homes = homes;
        let mut next = 0;
        // Without a branch on gaps, which nobody can predict: a gap is written where the next entry will be.
        for slot in old.iter().flat_map(|bucket| bucket.0) {
            let taken = slot != EMPTY;
            let at = if taken { (home_among(homes, tag_in(slot)) * BUCKET).max(next) } else { next };
            match self.buckets.get_mut(at / BUCKET) {
                Some(bucket) => bucket.0[at % BUCKET] = slot,
                None if taken => self.push(slot),
                None => {}
            }
            next = at + usize::from(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::unspread;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Hashes whose tags are small and often equal.
    fn close(key: u64) -> u64 {
        let hash = unspread(((key / 3) << 32) | (key % 3));
        assert_eq!(u64::from(tag_of(hash)), key / 3);
        hash
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
                prop_assert_eq!(table.entries, model.len());
                prop_assert_eq!(table.bytes() == 0, model.is_empty());
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
    fn the_largest_hashes_do_not_look_like_empty_slots() {
        let mut table = HashTable::default();
        let hashes = [u64::MAX, u64::MAX - 1, u64::MAX - (1 << 32)].map(unspread);
        for (id, hash) in (0..).zip(hashes) {
            assert_eq!(table.find(hash, |known| hashes[known as usize] == hash), None);
            assert_eq!(table.insert(hash, id, |known| hashes[known as usize] == hash), Ok(()));
        }
        for (id, hash) in (0..).zip(hashes) {
            assert_eq!(table.find(hash, |known| hashes[known as usize] == hash), Some(id));
        }
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
