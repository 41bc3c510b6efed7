//! Cheap integer hashing for maps keyed by block hashes and small ids.
//!
//! Block hashes are uniform already, but a foreign engine's or a test's may not be (1, 2, 3 …), so one
//! multiplication spreads them. Not for text, and no defence against chosen keys: workers are trusted.

use std::hash::{BuildHasherDefault, Hasher};

/// 2⁶⁴ divided by the golden ratio, odd: the multiplier of Fibonacci hashing.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Spreads `key` over 64 bits; the high half is the better one.
pub(crate) const fn spread(key: u64) -> u64 {
    key.wrapping_mul(MULTIPLIER)
}

/// The key that spreads to `wide`, for tests that want collisions.
#[cfg(test)]
pub(crate) const fn unspread(wide: u64) -> u64 {
    // The inverse of the multiplier, modulo 2⁶⁴.
    wide.wrapping_mul(0xF1DE_83E1_9937_733D)
}

/// Map keyed by something that hashes as integers.
pub(crate) type SpreadMap<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<SpreadHasher>>;
/// Set of something that hashes as integers.
pub(crate) type SpreadSet<K> = hashbrown::HashSet<K, BuildHasherDefault<SpreadHasher>>;

/// Hasher behind [`SpreadMap`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpreadHasher(u64);

impl Hasher for SpreadHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, key: u32) {
        self.write_u64(u64::from(key));
    }

    fn write_u64(&mut self, key: u64) {
        // The tables take their position from the low bits, so the good high half is folded down.
        let wide = spread(self.0.rotate_left(5) ^ key);
        self.0 = wide ^ (wide >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
