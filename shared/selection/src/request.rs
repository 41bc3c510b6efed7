//! What a caller asks the selection service.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};
use switchtower_ids::{PartitionId, Stage};
use switchtower_scheduling::{Constraints, Rejection};

/// Longest reservation id, in bytes: ids are kept with every reservation, and for a minute after.
pub const RESERVATION_ID_BYTES_MAX: usize = 256;

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
    /// The caller's priority; 0 unless given. One that is not finite counts as 0.
    pub priority: f64,
    /// The caller's session.
    pub session: Option<Arc<str>>,
    /// Longest wait in the queue; the configured one applies too. Zero: now or not at all.
    pub deadline: Option<Duration>,
    /// The caller's own name for the reservation, of at most [`RESERVATION_ID_BYTES_MAX`] bytes. An empty one is none.
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

    /// The request as it is scheduled: an empty id, which all who forget to set one have in common, is none.
    ///
    /// # Errors
    /// The id is too long.
    pub(crate) fn checked(mut self) -> Result<Self, Rejection> {
        self.reservation_id = self.reservation_id.filter(|id| !id.is_empty());
        let bytes = self.reservation_id.as_ref().map_or(0, |id| id.len());
        if bytes > RESERVATION_ID_BYTES_MAX {
            return Err(Rejection::InvalidId { bytes, limit: RESERVATION_ID_BYTES_MAX });
        }
        Ok(self)
    }

    /// Tells a repeated request from another one under the same id (`book rule 3`).
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.model, &self.routing_group, self.stage).hash(&mut hasher);
        (&self.tokens, &self.lora_name, &self.cache_salt, &self.session).hash(&mut hasher);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn book_rule_3_the_fingerprint_tells_requests_apart() {
        let request = || SelectionRequest::new("m", vec![1, 2, 3]);
        let print = |change: fn(&mut SelectionRequest)| {
            let mut changed = request();
            change(&mut changed);
            changed.fingerprint()
        };
        let different = [
            request().fingerprint(),
            print(|request| request.model = "n".into()),
            print(|request| request.routing_group = "g".into()),
            print(|request| request.stage = Stage::Decode),
            print(|request| request.tokens = vec![1, 2].into()),
            print(|request| request.lora_name = Some("l".into())),
            print(|request| request.cache_salt = Some("l".into())),
            print(|request| request.constraints.required_taints = vec!["t".into()]),
        ];
        let distinct: std::collections::HashSet<_> = different.iter().collect();
        assert_eq!(distinct.len(), different.len());
        assert_eq!(print(|request| request.priority = 5.0), different[0]);
    }

    #[test]
    fn b61_an_empty_id_is_none_and_a_long_one_is_refused() {
        let named = |id: &str| {
            let request = SelectionRequest::new("m", vec![]);
            SelectionRequest { reservation_id: Some(id.into()), ..request }.checked()
        };
        assert!(named("").unwrap().reservation_id.is_none());
        assert!(named(&"x".repeat(RESERVATION_ID_BYTES_MAX)).unwrap().reservation_id.is_some());
        let refused = named(&"x".repeat(10_000)).unwrap_err();
        assert_eq!(refused, Rejection::InvalidId { bytes: 10_000, limit: RESERVATION_ID_BYTES_MAX });
    }
}
