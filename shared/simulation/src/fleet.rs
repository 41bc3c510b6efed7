//! What the fleet is made of: workers, ranks, and the engine that each row runs.

use switchtower_engine_sim::{EngineParameters, ParameterError};
use switchtower_ids::{Incarnation, Row};
use switchtower_kv::index::RowSlot;
use switchtower_scheduling::RowInfo;

use crate::trace::BLOCK_TOKENS;

/// The most rows of one fleet.
const ROWS_MAX: u32 = 16_384;

/// A fleet of equal workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetShape {
    /// Workers.
    pub workers: u32,
    /// Data-parallel ranks of each.
    pub ranks: u32,
    /// KV blocks of a worker; its ranks share them evenly.
    pub blocks_per_worker: u32,
}

/// A fleet that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FleetError {
    /// A count is zero.
    #[error("the fleet has 0 {0}: give it at least 1")]
    Zero(&'static str),
    /// More rows than a simulation takes.
    #[error("{workers} workers of {ranks} ranks are more than {ROWS_MAX} rows: take fewer")]
    TooManyRows {
        /// Workers.
        workers: u32,
        /// Ranks of each.
        ranks: u32,
    },
    /// Less than one block for each rank.
    #[error("{blocks} blocks per worker are too few for {ranks} ranks: give each rank at least 1")]
    TooFewBlocks {
        /// Blocks of a worker.
        blocks: u32,
        /// Its ranks.
        ranks: u32,
    },
    /// The engines cannot be.
    #[error(transparent)]
    Engine(#[from] ParameterError),
}

impl FleetShape {
    /// Refuses what cannot be.
    ///
    /// # Errors
    /// The first count that is wrong.
    pub fn validate(self) -> Result<(), FleetError> {
        let Self { workers, ranks, blocks_per_worker: blocks } = self;
        if let Some((_, name)) = [(workers, "workers"), (ranks, "ranks")].into_iter().find(|(n, _)| *n == 0) {
            return Err(FleetError::Zero(name));
        }
        if workers.saturating_mul(ranks) > ROWS_MAX {
            return Err(FleetError::TooManyRows { workers, ranks });
        }
        if blocks < ranks {
            return Err(FleetError::TooFewBlocks { blocks, ranks });
        }
        Ok(self.engine().validate()?)
    }

    /// (worker, rank) pairs.
    #[must_use]
    pub const fn rows(self) -> u32 {
        self.workers * self.ranks
    }

    /// The engine of each row: the default one, with blocks as large as a trace's.
    ///
    /// Its prefill capacity: a token costs 32 µs, and 0.0013 µs more for each token before it, so a prompt of 12,000 tokens
    /// takes 0.48 s, about 25,000 tokens/s, in steps of 8,192 tokens at 6 ms each on top; and decoding takes its time from
    /// the same steps. [`OfferedWork`](crate::OfferedWork) has the sums.
    #[must_use]
    pub fn engine(self) -> EngineParameters {
        let total_blocks = self.blocks_per_worker / self.ranks.max(1);
        EngineParameters { block_size: BLOCK_TOKENS, total_blocks, ..EngineParameters::default() }
    }

    /// The rows as a registry would tell them to a scheduler, each at its place.
    pub(crate) fn row_infos(self) -> Vec<RowInfo> {
        let engine = self.engine();
        let rows = (0..self.rows()).map(|place| RowInfo {
            row: self.row(place),
            slot: RowSlot(place),
            incarnation: FIRST_LIFE,
            revision: 1,
            endpoint: "".into(),
            taints: [].into(),
            draining: false,
            total_blocks: Some(engine.total_blocks.into()),
            max_batch_tokens: Some(engine.prefill_tokens_per_step.into()),
        });
        rows.collect()
    }

    /// The row at a place: workers from 1, and their ranks from 0.
    pub(crate) const fn row(self, place: u32) -> Row {
        Row::new((place / self.ranks) as u64 + 1, place % self.ranks)
    }

    /// The place of a row.
    pub(crate) const fn place(self, row: Row) -> u32 {
        // Rows come from `row`, so the worker fits.
        (row.worker.0 as u32).saturating_sub(1) * self.ranks + row.rank.0
    }
}

/// The life of every worker.
pub(crate) const FIRST_LIFE: Incarnation = Incarnation(1);

#[cfg(test)]
mod tests {
    use super::*;

    const FLEET: FleetShape = FleetShape { workers: 3, ranks: 2, blocks_per_worker: 9 };

    #[test]
    fn ranks_share_their_workers_blocks() {
        assert_eq!(FLEET.validate(), Ok(()));
        assert_eq!((FLEET.rows(), FLEET.engine().total_blocks), (6, 4));
        for place in 0..FLEET.rows() {
            assert_eq!(FLEET.place(FLEET.row(place)), place);
        }
        let infos = FLEET.row_infos();
        assert!(infos.is_sorted_by_key(|info| info.row), "a table sorts its rows, so places are positions");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_number() {
        let refused = |fleet: FleetShape| fleet.validate().unwrap_err().to_string();
        assert!(refused(FleetShape { workers: 0, ..FLEET }).contains("0 workers"));
        assert!(refused(FleetShape { ranks: 0, ..FLEET }).contains("0 ranks"));
        assert!(refused(FleetShape { workers: u32::MAX, ..FLEET }).contains("4294967295 workers"));
        assert!(refused(FleetShape { blocks_per_worker: 1, ..FLEET }).contains("1 blocks per worker"));
    }
}
