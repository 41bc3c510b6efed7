//! What an engine agent is told at its start, and the record that it keeps for its engine. Checked whole before anything is
//! asked or registered.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};
use switchtower_ids::{Incarnation, PartitionId, Stage, WorkerId};
use switchtower_selection::records::{RECORD_VERSION, RecordError, WorkerRecord};

/// The agent of one engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineAgentConfig {
    /// The engine's name in the cluster; stays across restarts.
    pub worker_id: u64,
    /// Where the agent, and routers unless [`advertise`](Self::advertise) is given, reach the engine: `http://host:port`.
    pub url: String,
    /// Where routers reach it, `http://host:port`, if that is elsewhere: an agent beside its engine may ask on loopback.
    pub advertise: Option<String>,
    /// Public name of the model; the engine must serve it under this name.
    pub model: String,
    /// Tokens per KV block, the same for all workers of the model. The engine's own, if it has prefix caching.
    pub block_size: u32,
    /// Data-parallel ranks that the header `x-data-parallel-rank` chooses among; 1 to 1,024.
    pub ranks: u32,
    /// KV blocks of one rank; what the engine says in its metrics unless given, unknown if it does not.
    pub total_blocks: Option<u64>,
    /// Tokens that one rank processes in one step, where known.
    pub max_batch_tokens: Option<u64>,
    /// Routing group that it belongs to.
    pub routing_group: String,
    /// What it does with a request.
    pub stage: Stage,
    /// Labels that requests can require or prefer.
    pub taints: BTreeSet<String>,
    /// What is asked to see whether the engine is well, with a `/` in front; it is if it answers with 2xx. `/health` unless
    /// given, and `/v1/models` of an engine that answers 404 there.
    pub health_path: Option<String>,
    /// Between two checks, in milliseconds; at least 10. Load is reported with the checks, and counts for 15 seconds.
    pub check_interval_ms: u64,
    /// How long the engine may take to answer a check, in milliseconds; at least 1.
    pub check_timeout_ms: u64,
    /// After so many failed checks in a row the engine is deregistered; at least 1.
    pub failures_max: u32,
    /// Lease of the record, in milliseconds, at least 1,000: how long a crash of the agent goes unnoticed.
    pub lease_ttl_ms: u64,
    /// How long the record says `draining` before it goes, in milliseconds, when the agent is told to stop: time for the
    /// requests inside the engine, which the agent does not see.
    pub drain_grace_ms: u64,
}

impl Default for EngineAgentConfig {
    fn default() -> Self {
        Self {
            worker_id: 1,
            url: String::new(),
            advertise: None,
            model: String::new(),
            block_size: 16,
            ranks: 1,
            total_blocks: None,
            max_batch_tokens: None,
            routing_group: PartitionId::DEFAULT_GROUP.to_owned(),
            stage: Stage::Aggregated,
            taints: BTreeSet::new(),
            health_path: None,
            check_interval_ms: 2_000,
            check_timeout_ms: 3_000,
            failures_max: 3,
            lease_ttl_ms: 10_000,
            drain_grace_ms: 5_000,
        }
    }
}

/// A configuration that no agent can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("engine_agent.{field} is {value}: it must be {rule}")]
pub struct EngineAgentConfigError {
    /// The field.
    pub field: &'static str,
    /// Its value, without credentials.
    pub value: String,
    /// What would be right.
    pub rule: String,
}

impl EngineAgentConfig {
    /// Refuses what no agent can have, and what no router would take.
    ///
    /// # Errors
    /// Names the first field that is wrong, its value, and what would be right.
    pub fn validate(&self) -> Result<(), EngineAgentConfigError> {
        let endpoints = [("url", Some(&self.url)), ("advertise", self.advertise.as_ref())];
        for (field, endpoint) in endpoints {
            let Some(endpoint) = endpoint else { continue };
            let record = self.record_at(endpoint, Incarnation(0));
            record.validate().map_err(|error| refused(field, &error))?;
        }
        let check = |holds: bool, field, value: u64, rule: &str| {
            let wrong = || EngineAgentConfigError { field, value: value.to_string(), rule: rule.to_owned() };
            if holds { Ok(()) } else { Err(wrong()) }
        };
        let interval_ms = self.check_interval_ms;
        check(interval_ms >= 10, "check_interval_ms", interval_ms, "at least 10")?;
        check(self.check_timeout_ms > 0, "check_timeout_ms", self.check_timeout_ms, "at least 1")?;
        check(self.failures_max > 0, "failures_max", self.failures_max.into(), "at least 1")?;
        check(self.lease_ttl_ms >= 1_000, "lease_ttl_ms", self.lease_ttl_ms, "at least 1000")?;
        let path = self.health_path.as_deref().unwrap_or("/");
        let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_path {
            let (value, rule) = (format!("`{}`", path.escape_debug()), "a path such as /health".to_owned());
            return Err(EngineAgentConfigError { field: "health_path", value, rule });
        }
        Ok(())
    }

    /// The record of one life of the engine.
    pub(super) fn record(&self, incarnation: Incarnation) -> WorkerRecord {
        self.record_at(self.advertise.as_ref().unwrap_or(&self.url), incarnation)
    }

    fn record_at(&self, endpoint: &str, incarnation: Incarnation) -> WorkerRecord {
        WorkerRecord {
            version: RECORD_VERSION,
            worker_id: WorkerId(self.worker_id),
            incarnation,
            endpoint: endpoint.to_owned(),
            model: self.model.clone(),
            routing_group: self.routing_group.clone(),
            stage: self.stage,
            ranks: self.ranks,
            block_size: self.block_size,
            total_blocks: self.total_blocks,
            max_batch_tokens: self.max_batch_tokens,
            taints: self.taints.clone(),
            draining: false,
            kv_events: false,
        }
    }

    pub(super) fn check_interval(&self) -> Duration {
        Duration::from_millis(self.check_interval_ms)
    }

    pub(super) fn check_timeout(&self) -> Duration {
        Duration::from_millis(self.check_timeout_ms)
    }

    pub(super) fn lease_ttl(&self) -> Duration {
        Duration::from_millis(self.lease_ttl_ms)
    }

    pub(super) fn drain_grace(&self) -> Duration {
        Duration::from_millis(self.drain_grace_ms)
    }
}

/// What a reader of the record would refuse, in the words of the configuration. `endpoint` is the field that the record's
/// endpoint was taken from.
fn refused(endpoint: &'static str, error: &RecordError) -> EngineAgentConfigError {
    let RecordError::Field { field, value, rule } = error else {
        let (value, rule) = ("not usable".to_owned(), format!("such that a record can be made ({error})"));
        return EngineAgentConfigError { field: "url", value, rule };
    };
    let field = if *field == "endpoint" { endpoint } else { *field };
    // Whatever stands before an @ may be a password.
    let value =
        value.rsplit_once('@').map_or_else(|| format!("`{value}`"), |(_, host)| format!("`***@{host}`"));
    EngineAgentConfigError { field, value, rule: (*rule).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> EngineAgentConfig {
        let (url, model) = ("http://engine-1:8000".to_owned(), "m".to_owned());
        EngineAgentConfig { url, model, ..EngineAgentConfig::default() }
    }

    #[test]
    fn url_and_model_are_all_that_has_to_be_said() {
        config().validate().unwrap();
        let text = serde_json::to_string(&config()).unwrap();
        assert_eq!(serde_json::from_str::<EngineAgentConfig>(&text).unwrap(), config());
        assert!(serde_json::from_str::<EngineAgentConfig>(r#"{"uri":"http://e:1"}"#).is_err());
        assert!(
            EngineAgentConfig::default()
                .validate()
                .unwrap_err()
                .to_string()
                .contains("engine_agent.url is ``")
        );
    }

    #[test]
    fn the_record_leads_routers_to_the_engine_and_promises_no_events() {
        let record = config().record(Incarnation(5));
        assert_eq!((record.endpoint.as_str(), record.kv_events), ("http://engine-1:8000", false));
        let advertise = Some("http://10.0.0.1:8000".to_owned());
        let record = EngineAgentConfig { advertise, ..config() }.record(Incarnation(5));
        assert_eq!(record.endpoint, "http://10.0.0.1:8000");
    }

    #[test]
    fn b29_what_no_router_would_take_is_refused_by_field() {
        type Change = fn(&mut EngineAgentConfig);
        let wrong: [(&str, Change); 11] = [
            ("url is `https://e:1`", |config| config.url = "https://e:1".into()),
            ("url is `http://e:1/v1`", |config| config.url = "http://e:1/v1".into()),
            ("advertise is `http://e`", |config| config.advertise = Some("http://e".into())),
            ("model is ``", |config| config.model.clear()),
            ("block_size is `0`", |config| config.block_size = 0),
            ("ranks is `0`", |config| config.ranks = 0),
            ("health_path is `health`", |config| config.health_path = Some("health".into())),
            ("check_interval_ms is 9", |config| config.check_interval_ms = 9),
            ("check_timeout_ms is 0", |config| config.check_timeout_ms = 0),
            ("failures_max is 0", |config| config.failures_max = 0),
            ("lease_ttl_ms is 999", |config| config.lease_ttl_ms = 999),
        ];
        for (beginning, change) in wrong {
            let mut config = config();
            change(&mut config);
            let error = config.validate().unwrap_err().to_string();
            assert!(error.starts_with(&format!("engine_agent.{beginning}: it must be ")), "{error}");
        }
    }

    #[test]
    fn invariant_9_a_password_in_the_url_is_refused_and_not_shown() {
        let error = EngineAgentConfig { url: "http://ann:s3cret@e:1".into(), ..config() }.validate();
        let error = error.unwrap_err().to_string();
        assert!(error.contains("***@e:1") && !error.contains("s3cret"), "{error}");
    }
}
