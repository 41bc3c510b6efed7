//! What both indexes are fed and asked: prompts, the rows that hold them, and the events that say so, in each side's types.
//!
//! Both sides get the same blocks in the same order, in events of the same size. The peer's events carry two hashes per
//! block, its own key needs both; ours carry one.

use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheStoreData, KvCacheStoredBlockData,
    LocalBlockHash, RouterEvent,
};
use switchtower_ids::{LocalHash, SequenceHash, Tier};
use switchtower_kv::{event::KvEvent, hash::sequence_hashes, index::RowSlot};

/// Blocks of one prompt.
pub(crate) const PROMPT: usize = 128;
/// Blocks of one event: an engine reports what one prefill step filled.
const EVENT: usize = 16;
/// Prompts whose events arrive mixed.
const WAVE: usize = 64;

/// One prompt's hashes.
pub(crate) struct Prompt {
    pub(crate) local: Vec<LocalHash>,
    pub(crate) sequence: Vec<SequenceHash>,
    /// For the peer's query.
    pub(crate) their_local: Vec<LocalBlockHash>,
}

impl Prompt {
    pub(crate) fn new(local: Vec<LocalHash>) -> Self {
        let sequence = sequence_hashes(&local);
        let their_local = local.iter().map(|hash| LocalBlockHash(hash.0)).collect();
        Self { local, sequence, their_local }
    }

    /// A prompt that no other seed shares a block with.
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self::new((0..PROMPT as u64).map(|block| LocalHash(mix(seed << 16 | block))).collect())
    }

    /// The peer's event that says that `row` holds the first `blocks`.
    pub(crate) fn their_event(&self, row: u64, blocks: usize) -> RouterEvent {
        self.their_stored(row, 1, 0, blocks)
    }

    /// The peer's event number `event_id` of `row`: it stores `blocks` blocks from `start` on.
    fn their_stored(&self, row: u64, event_id: u64, start: usize, blocks: usize) -> RouterEvent {
        let external = |hash: SequenceHash| ExternalSequenceBlockHash(hash.0);
        let hashes = self.sequence.iter().zip(&self.their_local).skip(start).take(blocks);
        let stored = hashes.map(|(sequence, local)| KvCacheStoredBlockData {
            block_hash: external(*sequence),
            tokens_hash: *local,
            mm_extra_info: None,
        });
        let data = KvCacheEventData::Stored(KvCacheStoreData {
            parent_hash: start.checked_sub(1).map(|before| external(self.sequence[before])),
            start_position: None,
            blocks: stored.collect(),
        });
        RouterEvent::new(row, KvCacheEvent { event_id, data, dp_rank: 0 })
    }

    /// The same first half, and a second one that nobody holds.
    pub(crate) fn diverging(&self, seed: u64) -> Self {
        let half = self.local.iter().take(PROMPT / 2).copied();
        let other = Self::of_seed(seed);
        Self::new(half.chain(other.local.iter().skip(PROMPT / 2).copied()).collect())
    }
}

/// Bijective: different numbers stay different (the finaliser of SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// Who holds which prompts.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) rows: u64,
    pub(crate) prompts: u64,
    /// Rows that hold each prompt.
    pub(crate) holders: u64,
}

impl Scenario {
    pub(crate) fn prompts(self) -> Vec<Prompt> {
        (1..=self.prompts).map(Prompt::of_seed).collect()
    }

    /// (row, block) pairs that the events add up to.
    pub(crate) fn pairs(self) -> u64 {
        self.prompts * self.holders * PROMPT as u64
    }

    /// In the order of arrival: prompts of one wave grow side by side, and so do their holders.
    fn arrivals(self) -> impl Iterator<Item = (u64, usize, usize)> {
        let waves = (0..self.prompts as usize).step_by(WAVE);
        waves.flat_map(move |wave| {
            (0..PROMPT).step_by(EVENT).flat_map(move |start| {
                let prompts = wave..(wave + WAVE).min(self.prompts as usize);
                prompts.flat_map(move |prompt| {
                    let first = prompt as u64 * self.holders;
                    (0..self.holders).map(move |holder| ((first + holder) % self.rows, prompt, start))
                })
            })
        })
    }

    pub(crate) fn our_events(self, prompts: &[Prompt]) -> impl Iterator<Item = (RowSlot, KvEvent)> {
        self.arrivals().map(|(row, prompt, start)| {
            let hashes = &prompts[prompt].sequence;
            let parent = start.checked_sub(1).map(|before| hashes[before]);
            let blocks = hashes[start..start + EVENT].to_vec();
            (RowSlot(row as u32), KvEvent::Stored { tier: Tier::Device, parent, blocks })
        })
    }

    pub(crate) fn their_events(self, prompts: &[Prompt]) -> impl Iterator<Item = RouterEvent> {
        let arrivals = self.arrivals().zip(1..);
        arrivals.map(|((row, prompt, start), id)| prompts[prompt].their_stored(row, id, start, EVENT))
    }
}
