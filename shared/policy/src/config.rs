//! Settings of the router that policies and the scheduler share, with defaults and ranges.

use serde::{Deserialize, Serialize};

/// The router's settings. Every field has a default; [`validate`](Self::validate) says which value is out of range.
///
/// Weights and scales are finite and not negative; costs are in blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KvRouterConfig {
    /// Name of the policy that serves requests, unless a factory was injected.
    pub policy: String,
    /// Name of the built-in policy that serves a request when the chosen one fails.
    pub fallback_policy: String,
    /// Seeds every generator of the router; the same seed and inputs give the same decisions. Processes draw one at
    /// start unless told.
    pub seed: u64,

    /// Blocks of credit for one device block of overlap.
    pub overlap_score_credit: f64,
    /// How fast the device credit fades with the row's prefill backlog; 0 is never.
    pub overlap_score_credit_decay: f64,
    /// Weight of prefill blocks in a cost.
    pub prefill_load_scale: f64,
    /// Block-equivalents of one active request in a cost.
    pub decode_active_request_weight: f64,
    /// What a block in host memory counts, 0 to 1.
    pub host_cache_hit_weight: f64,
    /// What a block on disk counts, 0 to 1.
    pub disk_cache_hit_weight: f64,
    /// What a block in a shared cache counts, 0 to 1. The host reads no shared cache yet: it matters to tests alone.
    pub shared_cache_multiplier: f64,
    /// Softmax temperature of the pick over costs scaled to 0..1; 0 picks the cheapest.
    pub router_temperature: f64,
    /// A row's cost multiplier for each preferred taint that it has; above 0, at most 1.
    pub preferred_taint_multiplier: f64,

    /// A row is busy while its active prefill tokens exceed this fraction of its worker's batch capacity; a request
    /// waits while every eligible row is busy. Unset: requests never wait in the router.
    pub queue_threshold: Option<f64>,
    /// Most requests that may wait in one partition; one more is rejected.
    pub queue_limit_requests: usize,
    /// Longest wait in milliseconds, where the request names no deadline.
    pub queue_wait_ms_max: u64,
    /// A row is overloaded while its active blocks exceed this fraction of its blocks. Unset: never.
    pub overload_blocks_fraction: Option<f64>,
    /// A row is overloaded while its active prefill tokens exceed this number. Unset: never.
    pub overload_prefill_tokens: Option<u64>,

    /// Failures in a row after which a policy is quarantined.
    pub quarantine_after_failures: u32,
    /// First quarantine in milliseconds; doubles with each one that follows, up to a hundredfold.
    pub quarantine_ms: u64,
    /// A policy that takes longer than this for one request has failed. Checked after the call.
    pub policy_budget_ms: u64,
}

impl Default for KvRouterConfig {
    fn default() -> Self {
        Self {
            policy: "adaptive".to_owned(),
            fallback_policy: "least-loaded".to_owned(),
            seed: 0,
            overlap_score_credit: 1.0,
            overlap_score_credit_decay: 0.0,
            prefill_load_scale: 1.0,
            decode_active_request_weight: 0.0,
            host_cache_hit_weight: 0.75,
            disk_cache_hit_weight: 0.25,
            shared_cache_multiplier: 0.0,
            router_temperature: 0.0,
            preferred_taint_multiplier: 0.5,
            queue_threshold: None,
            queue_limit_requests: 4_096,
            queue_wait_ms_max: 60_000,
            overload_blocks_fraction: None,
            overload_prefill_tokens: None,
            quarantine_after_failures: 3,
            quarantine_ms: 1_000,
            policy_budget_ms: 1_000,
        }
    }
}

/// A setting that is out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{field}` is {value}: it must be {rule}")]
pub struct InvalidConfig {
    /// The field's name.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What would be right.
    pub rule: &'static str,
}

impl KvRouterConfig {
    /// Checks every range.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        self.validate_scales()?;
        self.validate_fractions()?;
        self.validate_limits()
    }

    fn validate_scales(&self) -> Result<(), InvalidConfig> {
        let scales = [
            ("overlap_score_credit", self.overlap_score_credit),
            ("overlap_score_credit_decay", self.overlap_score_credit_decay),
            ("prefill_load_scale", self.prefill_load_scale),
            ("decode_active_request_weight", self.decode_active_request_weight),
            ("router_temperature", self.router_temperature),
        ];
        // The bound keeps every product of settings and loads finite.
        for (field, value) in scales {
            check(field, value, (0.0..=1e12).contains(&value), "a number from 0 to 1e12")?;
        }
        Ok(())
    }

    fn validate_fractions(&self) -> Result<(), InvalidConfig> {
        let fractions = [
            ("host_cache_hit_weight", self.host_cache_hit_weight),
            ("disk_cache_hit_weight", self.disk_cache_hit_weight),
            ("shared_cache_multiplier", self.shared_cache_multiplier),
        ];
        for (field, value) in fractions {
            check(field, value, (0.0..=1.0).contains(&value), "a number from 0 to 1")?;
        }
        let multiplier = self.preferred_taint_multiplier;
        check(
            "preferred_taint_multiplier",
            multiplier,
            multiplier > 0.0 && multiplier <= 1.0,
            "above 0, at most 1",
        )?;
        for (field, value) in [
            ("queue_threshold", self.queue_threshold),
            ("overload_blocks_fraction", self.overload_blocks_fraction),
        ] {
            let value = value.unwrap_or(1.0);
            check(field, value, value > 0.0 && value <= 1e6, "above 0, at most 1e6")?;
        }
        Ok(())
    }

    fn validate_limits(&self) -> Result<(), InvalidConfig> {
        let limits = [
            ("queue_wait_ms_max", self.queue_wait_ms_max),
            ("quarantine_after_failures", u64::from(self.quarantine_after_failures)),
            ("quarantine_ms", self.quarantine_ms),
            ("policy_budget_ms", self.policy_budget_ms),
        ];
        // A day is longer than any wait that makes sense, and keeps sums of milliseconds far from overflow.
        for (field, value) in limits {
            check(field, value, (1..=86_400_000).contains(&value), "from 1 to 86400000")?;
        }
        let queue = self.queue_limit_requests;
        check("queue_limit_requests", queue, queue <= 1_000_000, "at most 1000000")
    }
}

fn check(
    field: &'static str,
    value: impl ToString,
    holds: bool,
    rule: &'static str,
) -> Result<(), InvalidConfig> {
    if holds { Ok(()) } else { Err(InvalidConfig { field, value: value.to_string(), rule }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(KvRouterConfig::default().validate(), Ok(()));
    }

    #[test]
    fn b81_weights_out_of_range_are_refused_with_the_field_name() {
        for bad in [f64::NAN, f64::INFINITY, -1.0, 1e308] {
            let config = KvRouterConfig { overlap_score_credit: bad, ..KvRouterConfig::default() };
            assert_eq!(config.validate().unwrap_err().field, "overlap_score_credit", "{bad}");
            let config = KvRouterConfig { queue_threshold: Some(bad), ..KvRouterConfig::default() };
            assert_eq!(config.validate().unwrap_err().field, "queue_threshold", "{bad}");
            let config = KvRouterConfig { preferred_taint_multiplier: bad, ..KvRouterConfig::default() };
            assert_eq!(config.validate().unwrap_err().field, "preferred_taint_multiplier", "{bad}");
        }
    }
}
