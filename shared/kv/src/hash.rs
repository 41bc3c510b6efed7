//! Block hashes: the names under which cached prompt blocks are known everywhere.
//!
//! The scheme is the one the field already publishes, so that other tools' events fit:
//!
//! - local hash of a block = XXH3-64 of its tokens as little-endian `u32`s, seeded with
//!   `1337 + XXH3-64(LoRA name, seed 0) + XXH3-64(cache salt, seed 1)`, wrapping; an absent or empty name or salt
//!   is left out;
//! - sequence hash of the first block = its local hash; of any other = XXH3-64 of the little-endian pair
//!   (previous sequence hash, local hash), seeded with 1337.
//!
//! Only full blocks are hashed. Called for every request, so nothing is allocated per block. Tokens are prompt
//! content: they never leave this file in an error or a log.

use std::num::NonZeroU32;
use switchtower_ids::{LocalHash, SequenceHash};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const BASE_SEED: u64 = 1337;
const LORA_SEED: u64 = 0;
const SALT_SEED: u64 = 1;
const TOKEN_BYTES: usize = size_of::<u32>();

/// What separates prompts that may not share cache although their tokens are equal: the adapter and the tenant's
/// salt, folded into the seed of the local hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HashSpace {
    seed: u64,
}

impl HashSpace {
    /// The space of `lora_name` and `cache_salt`; `None` and `""` are the same.
    #[must_use]
    pub fn new(lora_name: Option<&str>, cache_salt: Option<&str>) -> Self {
        let part = |text: Option<&str>, seed| match text {
            None | Some("") => 0,
            Some(text) => xxh3_64_with_seed(text.as_bytes(), seed),
        };
        let seed =
            BASE_SEED.wrapping_add(part(lora_name, LORA_SEED)).wrapping_add(part(cache_salt, SALT_SEED));
        Self { seed }
    }
}

impl Default for HashSpace {
    /// No adapter, no salt.
    fn default() -> Self {
        Self::new(None, None)
    }
}

/// Local hashes of the full blocks of `tokens`; a last, partial block is left out.
#[must_use]
pub fn local_hashes(tokens: &[u32], block_size: NonZeroU32, space: HashSpace) -> Vec<LocalHash> {
    locals(tokens, block_size, space).collect()
}

/// Sequence hashes of a prompt whose blocks have these local hashes.
#[must_use]
pub fn sequence_hashes(locals: &[LocalHash]) -> Vec<SequenceHash> {
    chain(locals.iter().copied()).collect()
}

/// Sequence hashes of the full blocks of `tokens`: [`local_hashes`] and [`sequence_hashes`] in one pass.
#[must_use]
pub fn block_hashes(tokens: &[u32], block_size: NonZeroU32, space: HashSpace) -> Vec<SequenceHash> {
    chain(locals(tokens, block_size, space)).collect()
}

/// The sequence hash of the block `local` that follows the prefix `parent` (`None`: it is the first block).
#[must_use]
pub fn extend(parent: Option<SequenceHash>, local: LocalHash) -> SequenceHash {
    let Some(parent) = parent else {
        return SequenceHash(local.0);
    };
    let mut pair = [0; 16];
    pair[..8].copy_from_slice(&parent.0.to_le_bytes());
    pair[8..].copy_from_slice(&local.0.to_le_bytes());
    SequenceHash(xxh3_64_with_seed(&pair, BASE_SEED))
}

/// One buffer serves all blocks; it is no larger than the tokens, however large the block size is.
fn locals(
    tokens: &[u32],
    block_size: NonZeroU32,
    space: HashSpace,
) -> impl ExactSizeIterator<Item = LocalHash> {
    let block_size = usize::try_from(block_size.get()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; block_size.min(tokens.len()).saturating_mul(TOKEN_BYTES)];
    tokens.chunks_exact(block_size).map(move |block| {
        for (slot, token) in bytes.chunks_exact_mut(TOKEN_BYTES).zip(block) {
            slot.copy_from_slice(&token.to_le_bytes());
        }
        LocalHash(xxh3_64_with_seed(&bytes, space.seed))
    })
}

fn chain(locals: impl ExactSizeIterator<Item = LocalHash>) -> impl ExactSizeIterator<Item = SequenceHash> {
    let mut parent = None;
    locals.map(move |local| {
        let hash = extend(parent, local);
        parent = Some(hash);
        hash
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(tokens: u32) -> NonZeroU32 {
        NonZeroU32::new(tokens).unwrap()
    }

    #[test]
    fn an_empty_adapter_or_salt_is_the_same_as_none() {
        assert_eq!(HashSpace::new(Some(""), Some("")), HashSpace::default());
        assert_ne!(HashSpace::new(Some("a"), None), HashSpace::new(None, Some("a")));
    }

    #[test]
    fn partial_blocks_and_huge_block_sizes_give_nothing() {
        assert!(block_hashes(&[1, 2, 3], size(4), HashSpace::default()).is_empty());
        assert!(block_hashes(&[1, 2, 3], size(u32::MAX), HashSpace::default()).is_empty());
        assert!(block_hashes(&[], size(1), HashSpace::default()).is_empty());
        assert_eq!(block_hashes(&[1, 2, 3], size(2), HashSpace::default()).len(), 1);
    }

    #[test]
    fn a_longer_prompt_extends_the_hashes_of_its_prefix() {
        let tokens: Vec<u32> = (0..64).collect();
        let (short, long) = (&tokens[..32], &tokens[..]);
        let hash = |tokens| block_hashes(tokens, size(16), HashSpace::default());
        assert_eq!(hash(short), hash(long)[..2]);
    }
}
