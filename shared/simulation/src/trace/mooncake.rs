//! The mooncake format: one JSON object per line. Other fields are let be. Called by `reading`.

use super::reading::{Prefixes, Recorded, TOKENS_MAX};
use serde::Deserialize;
use std::num::NonZeroU32;
use switchtower_ids::SequenceHash;
use switchtower_kv::hash::{HashSpace, block_hashes};

/// The latest timestamp: some thousand years, so that microseconds fit.
const TIMESTAMP_MS_MAX: f64 = 1e14;

/// An id's 64 bits as tokens.
const TOKENS_PER_ID: NonZeroU32 = NonZeroU32::new(2).unwrap();

#[derive(Deserialize)]
struct Line {
    /// Milliseconds; some tools write fractions.
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// Reads one line, or says what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Recorded, String> {
    let line: Line = serde_json::from_str(text).map_err(|error| reason(&error))?;
    if !(0.0..=TIMESTAMP_MS_MAX).contains(&line.timestamp) {
        return Err(format!("`timestamp` is {}: it must be milliseconds from 0", line.timestamp));
    }
    if line.input_length == 0 {
        return Err("`input_length` is 0: a prompt has at least one token".to_owned());
    }
    for (field, tokens) in [("input_length", line.input_length), ("output_length", line.output_length)] {
        if tokens > TOKENS_MAX {
            return Err(format!("`{field}` is {tokens}: no model takes that many tokens"));
        }
    }
    Ok(Recorded {
        at_us: (line.timestamp * 1_000.0).round() as u64,
        input_length: line.input_length,
        output_length: line.output_length,
        blocks: Prefixes::Ids(line.hash_ids),
    })
}

/// The parser's words, cut to a readable length, without the line, which is 1 in every line, and with the column.
fn reason(error: &serde_json::Error) -> String {
    const CHARACTERS_MAX: usize = 160;
    let text = error.to_string();
    let said = text.rsplit_once(" at line ").map_or(text.as_str(), |(said, _)| said);
    let said: String = said.chars().take(CHARACTERS_MAX).collect();
    format!("{said} at column {}", error.column())
}

/// Sequence hashes of blocks with these ids: as if each block held the two halves of its id as tokens. An id stands for
/// a whole prefix already; chaining costs nothing and keeps hashes right where a trace uses an id behind two prefixes.
pub(super) fn hashes(ids: &[u64]) -> Vec<SequenceHash> {
    let tokens: Vec<u32> = ids.iter().flat_map(|id| [*id as u32, (id >> 32) as u32]).collect();
    block_hashes(&tokens, TOKENS_PER_ID, HashSpace::default())
}
