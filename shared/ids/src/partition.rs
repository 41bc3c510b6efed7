//! The unit of scheduling: one model, one routing group, one stage.

use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// What a worker does with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Prefill and decode on the same worker.
    #[default]
    Aggregated,
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
}

impl Stage {
    /// The stage's name, as policies and metrics see it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Stage::Aggregated => "aggregated",
            Stage::Prefill => "prefill",
            Stage::Decode => "decode",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// (model, routing group, stage): what has one scheduler.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionId {
    /// The model's public name.
    pub model: Arc<str>,
    /// Workers of one model can be split into groups that never share requests; `default` unless configured.
    pub routing_group: Arc<str>,
    /// What the workers of this partition do.
    pub stage: Stage,
}

impl PartitionId {
    /// The routing group of a worker that names none.
    pub const DEFAULT_GROUP: &'static str = "default";

    /// The aggregated partition of `model` in the default routing group.
    #[must_use]
    pub fn aggregated(model: &str) -> Self {
        Self { model: model.into(), routing_group: Self::DEFAULT_GROUP.into(), stage: Stage::Aggregated }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.model, self.routing_group, self.stage)
    }
}
