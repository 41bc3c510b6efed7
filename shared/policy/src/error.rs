//! What can go wrong in a policy. But for one, none of it reaches a client: the request is served by the fallback policy.

/// Why a policy's answer cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerSelectionPolicyError {
    /// The policy itself says so.
    #[error("policy failed: {0}")]
    Failed(String),
    /// A scorer's contribution is NaN or infinite.
    #[error("scorer {scorer} gave row {row} the cost {value}: contributions must be finite")]
    NonFiniteContribution {
        /// Position of the scorer in the policy.
        scorer: usize,
        /// Row among the candidates.
        row: usize,
        /// What it returned.
        value: f64,
    },
    /// Contributions were finite, their sum is not.
    #[error("the costs of row {row} add up to {value}: sums must be finite")]
    NonFiniteCost {
        /// Row among the candidates.
        row: usize,
        /// The sum.
        value: f64,
    },
    /// The picker named a row that is not there.
    #[error("picker chose row {row} of {candidates}: rows count from 0")]
    InvalidRow {
        /// What it returned.
        row: usize,
        /// How many candidates it was shown.
        candidates: usize,
    },
    /// The policy's filters dropped every eligible row. This one does reach the client: no fallback chooses among
    /// rows that a filter has dropped. Only the host says it; from a part of a policy it is a failure.
    #[error("the policy's filters dropped all {candidates} eligible workers")]
    AllFiltered {
        /// How many rows there were before the filters.
        candidates: usize,
    },
}

impl WorkerSelectionPolicyError {
    /// A failure in the policy's own words.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// A short name for metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Failed(_) => "error",
            Self::NonFiniteContribution { .. } => "non_finite_contribution",
            Self::NonFiniteCost { .. } => "non_finite_cost",
            Self::InvalidRow { .. } => "invalid_row",
            Self::AllFiltered { .. } => "all_filtered",
        }
    }
}
