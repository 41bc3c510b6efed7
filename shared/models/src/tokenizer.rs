//! Text to token ids and back, with a `tokenizer.json` in the Hugging Face format. Wraps the `tokenizers` crate and
//! lets nothing of it through. Called by [`crate::prompt_inputs`] and by the simulated worker.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A loaded tokenizer. Cheap to share behind an `Arc`; encoding does not change it.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    id_limit: u32,
    token_bytes_max: usize,
}

/// What can go wrong with a tokenizer. No variant carries the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// Not a tokenizer file.
    #[error(
        "not a tokenizer: {reason}; give a tokenizer.json as written by the Hugging Face tokenizers library"
    )]
    Load {
        /// What the parser said.
        reason: String,
    },
    /// A tokenizer without tokens.
    #[error("the tokenizer has no tokens: train it or give another tokenizer.json")]
    Empty,
    /// The text could not be encoded.
    #[error("cannot encode {bytes} bytes of text: {reason}")]
    Encode {
        /// Length of the text.
        bytes: usize,
        /// What the library said.
        reason: String,
    },
    /// The ids could not be decoded.
    #[error("cannot decode {tokens} tokens: {reason}")]
    Decode {
        /// Number of ids.
        tokens: usize,
        /// What the library said.
        reason: String,
    },
}

impl Tokenizer {
    /// Read a `tokenizer.json`. Truncation and padding that the file asks for are switched off: a router needs every
    /// token, and only those.
    ///
    /// # Errors
    /// [`TokenizerError::Load`] if the bytes are not a tokenizer, [`TokenizerError::Empty`] if it has no tokens.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let load = |reason: String| TokenizerError::Load { reason };
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(bytes)).map_err(load)?;
        guarded(|| inner.with_truncation(None).map(|_| ())).map_err(load)?;
        inner.with_padding(None);
        let vocabulary = inner.get_vocab(true);
        let id_limit = vocabulary.values().max().ok_or(TokenizerError::Empty)?.saturating_add(1);
        let token_bytes_max = vocabulary.keys().map(String::len).max().unwrap_or(1).max(1);
        Ok(Self { inner, id_limit, token_bytes_max })
    }

    /// Token ids of `text`. Text that spells a special token becomes that token. `add_special_tokens` adds what the
    /// tokenizer's post-processor adds (for most models the BOS token).
    ///
    /// The caller bounds the text: the cost is about 1 µs per token.
    ///
    /// # Errors
    /// [`TokenizerError::Encode`] if the tokenizer has no token for a part of the text and no unknown token.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizerError> {
        guarded(|| self.inner.encode_fast(text, add_special_tokens))
            .map(|encoding| encoding.get_ids().to_vec())
            .map_err(|reason| TokenizerError::Encode { bytes: text.len(), reason })
    }

    /// Text of `ids`, special tokens included; ids that name no token are left out.
    ///
    /// # Errors
    /// [`TokenizerError::Decode`] if the tokenizer's decoder refuses.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        guarded(|| self.inner.decode(ids, false))
            .map_err(|reason| TokenizerError::Decode { tokens: ids.len(), reason })
    }

    /// One more than the largest token id: the ids a prompt may hold are below it.
    #[must_use]
    pub fn vocab_size(&self) -> u32 {
        self.id_limit
    }

    /// Id of the token spelled `token`.
    #[must_use]
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Fewest tokens that `bytes` of text can become, where that can be told without encoding: no token is longer
    /// than the vocabulary's longest, unless a normalizer shortens the text first. Lets a caller refuse a hopeless
    /// prompt before paying for it.
    #[must_use]
    pub fn tokens_min(&self, bytes: usize) -> usize {
        if self.inner.get_normalizer().is_some() { 0 } else { bytes / self.token_bytes_max }
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.id_limit).finish_non_exhaustive()
    }
}

/// Run a call into the library. It asserts in a few places that a file with odd contents can reach; such a panic
/// costs this one call. Every state it shares between calls is a cache.
fn guarded<T, E: std::fmt::Display>(call: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("the tokenizer library panicked; check the tokenizer.json".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    #[test]
    fn text_comes_back_from_its_tokens() {
        let tokenizer = builtin::tokenizer().unwrap();
        for text in ["", " ", "hello, world", "naïve 東京 🦀👩‍👩‍👧 \u{0}\u{7f}\r\n\t", "مرحبا", "a\u{301}"]
        {
            let ids = tokenizer.encode(text, false).unwrap();
            assert!(ids.iter().all(|id| *id < tokenizer.vocab_size()));
            assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }
    }

    #[test]
    fn special_tokens_are_added_only_when_asked() {
        let tokenizer = builtin::tokenizer().unwrap();
        let bos = tokenizer.token_id("<|begin|>").unwrap();
        assert_eq!(tokenizer.encode("", true).unwrap(), [bos]);
        assert_eq!(tokenizer.encode("<|begin|>", false).unwrap(), [bos]);
        assert_eq!(tokenizer.encode("", false).unwrap(), [] as [u32; 0]);
    }

    #[test]
    fn long_runs_are_encoded_whole() {
        let tokenizer = builtin::tokenizer().unwrap();
        for unit in [" ", "a", "\n", "1", "=", "é"] {
            let text = unit.repeat(200_000);
            let ids = tokenizer.encode(&text, false).unwrap();
            assert!(ids.len() >= tokenizer.tokens_min(text.len()));
            assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }
    }

    #[test]
    fn what_is_no_tokenizer_is_refused_with_advice() {
        for bytes in [&b""[..], b"{}", b"null", b"\xff\xfe", b"{\"model\":{\"type\":\"BPE\"}}"] {
            let error = Tokenizer::from_json(bytes).unwrap_err().to_string();
            assert!(error.contains("tokenizer.json"), "{error}");
        }
    }

    #[test]
    fn unknown_ids_decode_to_nothing() {
        let tokenizer = builtin::tokenizer().unwrap();
        assert_eq!(tokenizer.decode(&[u32::MAX, tokenizer.vocab_size()]).unwrap(), "");
    }
}
