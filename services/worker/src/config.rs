//! What one simulated worker is told at its start. Checked whole before anything is bound or registered.

use crate::{FaultError, Faults};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
};
use switchtower_engine_sim::{EngineParameters, ParameterError};
use switchtower_ids::{PartitionId, Stage};
use switchtower_selection::records::RANKS_MAX;

/// A simulated worker. Its model is given beside it (it is loaded once and shared).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimulatedWorkerConfig {
    /// The worker's name in the cluster; stays across restarts.
    pub worker_id: u64,
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Base URL that others reach it under, `http://host:port`; from the bound address unless given.
    pub advertise: Option<String>,
    /// Data-parallel ranks, each an engine of its own; 1 to 1,024.
    pub ranks: u32,
    /// Each rank's engine. `block_size` is taken from the model's card, whatever stands here.
    pub engine: EngineParameters,
    /// Virtual seconds per real second: 10 makes everything ten times as fast. Positive, at most 1e6.
    pub speed: f64,
    /// Of the faults. Answers depend on the request alone.
    pub seed: u64,
    /// Shortest answer, in tokens, where the request does not say.
    pub reply_tokens_min: u32,
    /// Longest answer, in tokens, where the request does not say; a sentence is finished beyond it.
    pub reply_tokens_max: u32,
    /// Routing group that it belongs to.
    pub routing_group: String,
    /// What it does with a request.
    pub stage: Stage,
    /// Labels that requests can require or prefer.
    pub taints: BTreeSet<String>,
    /// Whether it publishes KV events. Routers assume what one without them has cached.
    pub kv_events: bool,
    /// Lease of its record, in milliseconds of real time, at least 1,000: how long a crash goes unnoticed.
    pub lease_ttl_ms: u64,
    /// After so long without being registered it gives up and ends, in milliseconds of real time; 0 for never: then it
    /// serves on and tries again.
    pub unregistered_limit_ms: u64,
    /// Real time between load reports, in milliseconds; at least 10.
    pub load_report_ms: u64,
    /// Past KV events that each rank keeps for those that missed them; at least 1.
    pub kept_events: usize,
    /// Largest request body, in bytes.
    pub max_body_bytes: usize,
    /// Faults on purpose.
    pub faults: Faults,
}

impl Default for SimulatedWorkerConfig {
    fn default() -> Self {
        Self {
            worker_id: 1,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertise: None,
            ranks: 1,
            engine: EngineParameters::default(),
            speed: 1.0,
            seed: 0,
            reply_tokens_min: 32,
            reply_tokens_max: 256,
            routing_group: PartitionId::DEFAULT_GROUP.to_owned(),
            stage: Stage::Aggregated,
            taints: BTreeSet::new(),
            kv_events: true,
            lease_ttl_ms: 10_000,
            unregistered_limit_ms: 0,
            load_report_ms: 1_000,
            kept_events: 4_096,
            max_body_bytes: 64 << 20,
            faults: Faults::default(),
        }
    }
}

/// A configuration that no worker can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A field with a value that cannot be.
    #[error("worker.{field} is {value}: it must be {rule}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        rule: &'static str,
    },
    /// The engine's parameters.
    #[error("worker.engine: {0}")]
    Engine(#[from] ParameterError),
    /// The faults.
    #[error("worker.{0}")]
    Faults(#[from] FaultError),
}

impl SimulatedWorkerConfig {
    /// Refuses what no worker can have.
    ///
    /// # Errors
    /// Names the first field that is wrong, its value, and what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = |holds: bool, field, value: &dyn ToString, rule| {
            let wrong = || ConfigError::Field { field, value: value.to_string(), rule };
            if holds { Ok(()) } else { Err(wrong()) }
        };
        check((1..=RANKS_MAX).contains(&self.ranks), "ranks", &self.ranks, "from 1 to 1024")?;
        let speed = self.speed > 0.0 && self.speed <= 1e6;
        check(speed, "speed", &self.speed, "greater than 0 and at most 1e6")?;
        check(self.reply_tokens_min > 0, "reply_tokens_min", &self.reply_tokens_min, "at least 1")?;
        let ordered = self.reply_tokens_min <= self.reply_tokens_max;
        check(ordered, "reply_tokens_max", &self.reply_tokens_max, "at least reply_tokens_min")?;
        check(!self.routing_group.is_empty(), "routing_group", &self.routing_group, "a name")?;
        check(self.lease_ttl_ms >= 1_000, "lease_ttl_ms", &self.lease_ttl_ms, "at least 1000")?;
        check(self.load_report_ms >= 10, "load_report_ms", &self.load_report_ms, "at least 10")?;
        check(self.kept_events > 0, "kept_events", &self.kept_events, "at least 1")?;
        check(self.max_body_bytes > 0, "max_body_bytes", &self.max_body_bytes, "at least 1")?;
        if let Some(url) = &self.advertise {
            check(url.starts_with("http://"), "advertise", url, "a URL that begins with http://")?;
        }
        self.engine.validate()?;
        self.faults.validate()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_survives_json() {
        let config = SimulatedWorkerConfig::default();
        config.validate().unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<SimulatedWorkerConfig>(&text).unwrap(), config);
        assert!(serde_json::from_str::<SimulatedWorkerConfig>(r#"{"sped":2}"#).is_err());
    }

    #[test]
    fn b29_a_worker_without_ranks_and_other_nonsense_is_refused_by_field() {
        type Change = fn(&mut SimulatedWorkerConfig);
        let wrong: [(&str, Change); 8] = [
            ("worker.ranks is 0", |config| config.ranks = 0),
            ("worker.ranks is 1025", |config| config.ranks = 1_025),
            ("worker.speed is NaN", |config| config.speed = f64::NAN),
            ("worker.speed is 0", |config| config.speed = 0.0),
            ("worker.reply_tokens_max is 1", |config| {
                config.reply_tokens_max = 1;
            }),
            ("worker.advertise is https://x", |config| {
                config.advertise = Some("https://x".into());
            }),
            ("worker.engine: engine parameter `max_batch`", |config| {
                config.engine.max_batch = 0;
            }),
            ("worker.faults.slow_probability is 2", |config| {
                config.faults.slow_probability = 2.0;
            }),
        ];
        for (beginning, change) in wrong {
            let mut config = SimulatedWorkerConfig::default();
            change(&mut config);
            let error = config.validate().unwrap_err().to_string();
            assert!(error.starts_with(beginning), "{error}");
        }
    }
}
