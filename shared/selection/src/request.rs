//! What a caller asks the selection service.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};
use switchtower_ids::{PartitionId, Stage};
use switchtower_scheduling::Constraints;

/// One request for one worker. `Debug` leaves the prompt out.
#[derive(Clone)]
pub struct SelectionRequest {
    /// Public name of the model.
    pub model: Arc<str>,
    /// Routing group; `default` unless set.
    pub routing_group: Arc<str>,
    /// What the worker is to do.
    pub stage: Stage,
    /// The prompt's token ids.
    pub tokens: Arc<[u32]>,
    /// The adapter, which has a cache of its own.
    pub lora_name: Option<String>,
    /// The cache salt, which separates the caches of callers.
    pub cache_salt: Option<String>,
    /// Tokens the caller expects back, where known.
    pub expected_output_tokens: Option<u64>,
    /// Which rows may take it.
    pub constraints: Constraints,
    /// The caller's priority; 0 unless given, finite.
    pub priority: f64,
    /// The caller's session.
    pub session: Option<Arc<str>>,
    /// Longest wait in the queue; the configured one applies too.
    pub deadline: Option<Duration>,
    /// The caller's own name for the reservation.
    pub reservation_id: Option<Arc<str>>,
}

impl SelectionRequest {
    /// A request without wishes for `model` in the default group, aggregated.
    #[must_use]
    pub fn new(model: &str, tokens: impl Into<Arc<[u32]>>) -> Self {
        Self {
            model: model.into(),
            routing_group: PartitionId::DEFAULT_GROUP.into(),
            stage: Stage::Aggregated,
            tokens: tokens.into(),
            lora_name: None,
            cache_salt: None,
            expected_output_tokens: None,
            constraints: Constraints::default(),
            priority: 0.0,
            session: None,
            deadline: None,
            reservation_id: None,
        }
    }

    /// The partition that schedules it.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        PartitionId {
            model: Arc::clone(&self.model),
            routing_group: Arc::clone(&self.routing_group),
            stage: self.stage,
        }
    }

    /// Tells a repeated request from another one under the same id (`book rule 3`).
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.tokens, &self.lora_name, &self.cache_salt, &self.session, self.stage).hash(&mut hasher);
        let Constraints { allowed_workers, pin, ranks, required_taints, preferred_taints, .. } =
            &self.constraints;
        let pin = pin.map(|pin| (pin.worker, pin.rank));
        (allowed_workers, pin, ranks, required_taints, preferred_taints).hash(&mut hasher);
        hasher.finish()
    }
}

impl std::fmt::Debug for SelectionRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SelectionRequest")
            .field("partition", &format_args!("{}", self.partition()))
            .field("prompt_tokens", &self.tokens.len())
            .field("constraints", &self.constraints)
            .finish_non_exhaustive()
    }
}
