//! What `HttpFrontend::run(runtime, engine_config)` takes: which models to serve, where to listen, how much to accept
//! and how long to wait. Part of the configuration tree; read nowhere else.

use crate::{
    ModelSource,
    card::{self, CardError},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use switchtower_policy::KvRouterConfig;

/// Settings of a frontend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// The models to serve, at least one, names all different.
    pub models: Vec<ModelSource>,
    /// Where the HTTP API listens; port 0 takes a free one.
    pub http: SocketAddr,
    /// Where the admin API listens, if at all: it asks nobody who they are, so keep it on loopback or behind a fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<SocketAddr>,
    /// How workers are chosen.
    pub router: KvRouterConfig,
    /// How much is accepted.
    pub limits: Limits,
    /// How long is waited.
    pub timeouts: Timeouts,
}

/// How much the frontend accepts; beyond each of these it answers with a status of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest body of a request; 413 above.
    pub max_body_bytes: usize,
    /// Requests in flight in this replica; 429 above.
    pub max_concurrent_requests: usize,
    /// All headers of a request together; 431 above.
    pub max_header_bytes: usize,
    /// Open connections; more wait to be accepted.
    pub max_connections: usize,
}

/// How long the frontend waits, in milliseconds, none of them 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// For the headers of a request.
    pub header_read_ms: u64,
    /// For the whole body of a request.
    pub body_read_ms: u64,
    /// For a connection to a worker.
    pub connect_ms: u64,
    /// From dispatch to the worker's first byte.
    pub first_byte_ms: u64,
    /// Between two chunks of a worker's answer.
    pub idle_ms: u64,
    /// For requests in flight to end at shutdown.
    pub drain_ms: u64,
}

/// Settings that cannot be used. Each names the field.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EngineConfigError {
    /// Nothing to serve.
    #[error("models: empty: name at least one model, or leave the field out for the built-in one")]
    NoModels,
    /// Two models cannot be told apart.
    #[error("models: `{name}` is there twice: give every model a name of its own")]
    DuplicateModel {
        /// The name.
        name: String,
    },
    /// A model's name is none.
    #[error("models: {0}")]
    ModelName(#[from] CardError),
    /// A limit or timeout that lets nothing through.
    #[error("{field}: 0 lets nothing through: give at least 1")]
    Zero {
        /// The field's path.
        field: &'static str,
    },
}

impl Default for EngineConfig {
    /// The built-in model on 127.0.0.1:8080.
    fn default() -> Self {
        Self {
            models: vec![ModelSource::BuiltIn],
            http: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            admin: None,
            router: KvRouterConfig::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 64 << 20,
            max_concurrent_requests: 4096,
            max_header_bytes: 64 << 10,
            max_connections: 16_384,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header_read_ms: 10_000,
            body_read_ms: 60_000,
            connect_ms: 2_000,
            first_byte_ms: 300_000,
            idle_ms: 120_000,
            drain_ms: 30_000,
        }
    }
}

impl Timeouts {
    /// [`first_byte_ms`](Self::first_byte_ms) as a duration.
    #[must_use]
    pub fn first_byte(&self) -> Duration {
        Duration::from_millis(self.first_byte_ms)
    }

    /// [`idle_ms`](Self::idle_ms) as a duration.
    #[must_use]
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    /// [`drain_ms`](Self::drain_ms) as a duration.
    #[must_use]
    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}

impl EngineConfig {
    /// Whether models, limits and timeouts can be used. The router's settings check themselves.
    ///
    /// # Errors
    /// [`EngineConfigError`] for the first field that cannot.
    pub fn validate(&self) -> Result<(), EngineConfigError> {
        if self.models.is_empty() {
            return Err(EngineConfigError::NoModels);
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.models.iter().find(|model| !names.insert(model.name())) {
            return Err(EngineConfigError::DuplicateModel { name: twice.name().to_owned() });
        }
        for model in &self.models {
            card::check_name(model.name())?;
        }
        match self.sizes().into_iter().find(|(_, size)| *size == 0) {
            Some((field, _)) => Err(EngineConfigError::Zero { field }),
            None => Ok(()),
        }
    }

    fn sizes(&self) -> [(&'static str, u64); 10] {
        let Self { limits, timeouts, .. } = self;
        [
            ("limits.max_body_bytes", limits.max_body_bytes as u64),
            ("limits.max_concurrent_requests", limits.max_concurrent_requests as u64),
            ("limits.max_header_bytes", limits.max_header_bytes as u64),
            ("limits.max_connections", limits.max_connections as u64),
            ("timeouts.header_read_ms", timeouts.header_read_ms),
            ("timeouts.body_read_ms", timeouts.body_read_ms),
            ("timeouts.connect_ms", timeouts.connect_ms),
            ("timeouts.first_byte_ms", timeouts.first_byte_ms),
            ("timeouts.idle_ms", timeouts.idle_ms),
            ("timeouts.drain_ms", timeouts.drain_ms),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_serves_the_built_in_model_on_loopback() {
        let config = EngineConfig::default();
        config.validate().unwrap();
        assert_eq!(config.models, [ModelSource::BuiltIn]);
        assert_eq!(config.http.to_string(), "127.0.0.1:8080");
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<EngineConfig>(&text).unwrap(), config);
    }

    #[test]
    fn unusable_settings_name_the_field() {
        type Change = fn(&mut EngineConfig);
        let wrong: [(&str, Change); 4] = [
            ("models", |config| config.models.clear()),
            ("models", |config| config.models.push(ModelSource::BuiltIn)),
            ("limits.max_body_bytes", |config| config.limits.max_body_bytes = 0),
            ("timeouts.drain_ms", |config| config.timeouts.drain_ms = 0),
        ];
        for (field, change) in wrong {
            let mut config = EngineConfig::default();
            change(&mut config);
            let error = config.validate().unwrap_err().to_string();
            assert!(error.starts_with(field), "{error}");
        }
    }

    #[test]
    fn unknown_settings_are_refused() {
        for text in [
            r#"{"port": 1}"#,
            r#"{"limits": {"max_body": 1}}"#,
            r#"{"models": [{"kind": "path", "name": "a", "path": "b", "size": 1}]}"#,
        ] {
            assert!(serde_json::from_str::<EngineConfig>(text).is_err(), "{text}");
        }
    }
}
