//! What one infinite cache that sees every request at once would have hit: the measure of every policy.

use super::{BLOCK_TOKENS, Trace};
use std::collections::HashSet;

impl Trace {
    /// Tokens of each prompt, in trace order, that an infinite cache shared by the whole fleet would hold: those of the
    /// longest run of full blocks, from the first, that earlier requests had. Earlier means earlier in the trace,
    /// whether an engine would have computed them by then or not.
    #[must_use]
    pub fn oracle_hits(&self) -> Vec<u32> {
        let mut seen = HashSet::new();
        let hits = self.requests.iter().map(|request| {
            let known = request.blocks.iter().take_while(|block| seen.contains(*block)).count();
            seen.extend(request.blocks[known..].iter().copied());
            known as u32 * BLOCK_TOKENS
        });
        hits.collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::{ReadOptions, Trace};

    #[test]
    fn a_hit_is_a_prefix_of_full_blocks_that_came_before() {
        let line = |input: u32, ids: &[u64]| {
            format!("{{\"timestamp\":0,\"input_length\":{input},\"output_length\":1,\"hash_ids\":{ids:?}}}\n")
        };
        let text = [
            line(1_500, &[0, 1, 2]),
            line(1_500, &[0, 1, 3]),
            line(1_536, &[0, 4, 2]),
            line(1_536, &[0, 4, 2]),
        ];
        let trace = Trace::read(text.concat().as_bytes(), ReadOptions::default()).unwrap();
        assert_eq!(trace.oracle_hits(), [0, 1_024, 512, 1_536]);
    }
}
