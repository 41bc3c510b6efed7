//! What workers write into discovery: JSON records, versioned, readable with the store's own tools.
//!
//! Wire types: they stop at the registry, which turns them into rows. A record that does not parse or contradicts
//! itself is refused with a reason and harms nobody else. What operators and routers write stands in [`DrainSetting`],
//! [`RefusedClaim`] and [`ReplicaRecord`].

mod claim;
mod drain;
mod replica;

pub use claim::{CLAIMS, RefusedClaim};
pub use drain::{DRAINS, DrainSetting, REASON_BYTES_MAX};
pub use replica::{REPLICAS, ReplicaRecord};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeSet;
use switchtower_ids::{Incarnation, PartitionId, Stage, WorkerId};

/// Prefix of every worker record's key.
pub const WORKERS: &str = "workers/";

/// The version of every record that this release writes and reads.
pub const RECORD_VERSION: u32 = 1;

/// Most ranks one worker may announce.
pub const RANKS_MAX: u32 = 1_024;

/// Longest model name, routing group or taint, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// Most taints one worker may have.
pub const TAINTS_MAX: usize = 256;

/// What a worker says of itself, at `workers/<worker_id>`, under its lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The worker's name; stays across restarts.
    pub worker_id: WorkerId,
    /// The worker's life; new at every start.
    pub incarnation: Incarnation,
    /// Base URL of the worker's OpenAI endpoint, `http://host:port`.
    pub endpoint: String,
    /// Public name of the model it serves.
    pub model: String,
    /// Routing group; `default` unless set.
    #[serde(default = "default_group")]
    pub routing_group: String,
    /// What it does with a request.
    #[serde(default)]
    pub stage: Stage,
    /// Number of data-parallel ranks, numbered from 0.
    #[serde(default = "one")]
    pub ranks: u32,
    /// Tokens per KV block; all workers of a partition agree.
    pub block_size: u32,
    /// KV blocks of one rank, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_blocks: Option<u64>,
    /// Tokens that one rank processes in one step, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_batch_tokens: Option<u64>,
    /// Labels that requests can require or prefer.
    #[serde(default)]
    pub taints: BTreeSet<String>,
    /// Whether the worker takes no new requests.
    #[serde(default)]
    pub draining: bool,
    /// Whether the worker publishes KV events. For one that does not, routers assume that it has cached what they sent
    /// there.
    #[serde(default = "yes")]
    pub kv_events: bool,
}

fn default_group() -> String {
    PartitionId::DEFAULT_GROUP.to_owned()
}

const fn one() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

/// Why a record is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not JSON, or not of this shape.
    #[error("the record does not parse: {0}")]
    Parse(String),
    /// From a release that writes another version.
    #[error("record version {0} is not supported: this release reads version {RECORD_VERSION}")]
    Version(u32),
    /// A field with a value that cannot be.
    #[error("`{field}` is {value}: it must be {rule}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        rule: &'static str,
    },
    /// The key names somebody else than the record.
    #[error("the key `{key}` does not belong to this record: write it at `{expected}`")]
    Key {
        /// The key it was found at.
        key: String,
        /// Where it belongs.
        expected: String,
    },
}

impl RecordError {
    /// Its kind, for metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Parse(_) => "parse",
            Self::Version(_) => "version",
            Self::Field { .. } => "field",
            Self::Key { .. } => "key",
        }
    }
}

impl WorkerRecord {
    /// The key of this worker's record.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{WORKERS}{}", self.worker_id)
    }

    /// The partition that this worker belongs to.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        PartitionId {
            model: self.model.as_str().into(),
            routing_group: self.routing_group.as_str().into(),
            stage: self.stage,
        }
    }

    /// The record as it stands in the store.
    ///
    /// # Errors
    /// Never for the types of this record; the serializer's own error otherwise.
    pub fn to_json(&self) -> Result<Vec<u8>, RecordError> {
        to_json(self)
    }

    /// Reads and checks the record found at `key`.
    ///
    /// # Errors
    /// Says what is wrong with the record, by field.
    pub fn parse(key: &str, json: &[u8]) -> Result<Self, RecordError> {
        let record: Self = from_json(json)?;
        record.validate()?;
        belongs_at(key, record.key())?;
        Ok(record)
    }

    /// What every reader of the record will ask of it.
    ///
    /// # Errors
    /// Says what is wrong with the record, by field.
    pub fn validate(&self) -> Result<(), RecordError> {
        check_version(self.version)?;
        let endpoint = is_http_host_and_port(&self.endpoint);
        field(endpoint, "endpoint", &self.endpoint, "a URL of the form http://host:port")?;
        field(is_name(&self.model), "model", &self.model, "the model's name, of at most 256 bytes")?;
        let group = &self.routing_group;
        field(is_name(group), "routing_group", group, "the group's name, of at most 256 bytes")?;
        let taints = self.taints.len() <= TAINTS_MAX && self.taints.iter().all(|taint| is_name(taint));
        field(taints, "taints", &self.taints.len(), "at most 256 names of at most 256 bytes")?;
        field((1..=RANKS_MAX).contains(&self.ranks), "ranks", &self.ranks, "from 1 to 1024")?;
        field(self.block_size > 0, "block_size", &self.block_size, "at least 1")
    }
}

fn to_json(record: &impl Serialize) -> Result<Vec<u8>, RecordError> {
    serde_json::to_vec(record).map_err(|error| RecordError::Parse(error.to_string()))
}

fn from_json<R: DeserializeOwned>(json: &[u8]) -> Result<R, RecordError> {
    serde_json::from_slice(json).map_err(|error| RecordError::Parse(error.to_string()))
}

fn check_version(version: u32) -> Result<(), RecordError> {
    if version == RECORD_VERSION { Ok(()) } else { Err(RecordError::Version(version)) }
}

fn field(
    holds: bool,
    field: &'static str,
    value: &dyn ToString,
    rule: &'static str,
) -> Result<(), RecordError> {
    if holds { Ok(()) } else { Err(RecordError::Field { field, value: value.to_string(), rule }) }
}

fn belongs_at(key: &str, expected: String) -> Result<(), RecordError> {
    if key == expected { Ok(()) } else { Err(RecordError::Key { key: key.to_owned(), expected }) }
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Nothing else: no credentials that would end up in logs, no paths or schemes that lead elsewhere (B150).
fn is_http_host_and_port(url: &str) -> bool {
    let address = url.strip_prefix("http://").and_then(|address| address.rsplit_once(':'));
    address.is_some_and(|(host, port)| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
        let is_ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = is_ipv6.map_or_else(
            || !host.is_empty() && host.len() <= NAME_BYTES_MAX && host.chars().all(plain),
            |host| host.parse::<std::net::Ipv6Addr>().is_ok(),
        );
        host && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"{"version":1,"worker_id":7,"incarnation":9,"endpoint":"http://127.0.0.1:1","model":"m",
        "block_size":16,"a_field_of_later_releases":true}"#;

    #[test]
    fn a_minimal_record_gets_defaults_and_unknown_fields_are_ignored() {
        let record = WorkerRecord::parse("workers/7", MINIMAL.as_bytes()).unwrap();
        assert_eq!((record.ranks, record.routing_group.as_str(), record.draining), (1, "default", false));
        assert!(record.kv_events, "a worker publishes KV events unless it says otherwise");
        assert_eq!(WorkerRecord::parse("workers/7", &record.to_json().unwrap()), Ok(record));
    }

    #[test]
    fn contradictions_are_refused_by_field() {
        let broken =
            |from: &str, to: &str| WorkerRecord::parse("workers/7", MINIMAL.replace(from, to).as_bytes());
        assert!(matches!(broken("\"version\":1", "\"version\":2"), Err(RecordError::Version(2))));
        assert!(matches!(broken("http://", "ftp://"), Err(RecordError::Field { field: "endpoint", .. })));
        assert!(matches!(
            broken("size\":16", "size\":0"),
            Err(RecordError::Field { field: "block_size", .. })
        ));
        assert!(matches!(broken("id\":7", "id\":8"), Err(RecordError::Key { .. })));
        assert!(matches!(broken("{", ""), Err(RecordError::Parse(_))));
        assert!(matches!(broken("\"m\"", "\"\""), Err(RecordError::Field { field: "model", .. })));
        let long = format!("\"{}\"", "m".repeat(257));
        assert!(matches!(broken("\"m\"", &long), Err(RecordError::Field { field: "model", .. })));
    }

    #[test]
    fn b150_an_endpoint_is_a_host_and_a_port_and_nothing_else() {
        for good in ["http://127.0.0.1:1", "http://worker-3.pool_a.svc:8000", "http://[::1]:9"] {
            assert!(is_http_host_and_port(good), "{good}");
        }
        for bad in [
            "http://",
            "http://host",
            "http://:80",
            "http://host:0",
            "http://host:99999",
            "http://user:secret@host:80",
            "http://host:80/path",
            "http://host:80?q",
            "http://a/b:80",
            "http://[::1:80",
            "https://host:80",
            "file:///etc/passwd",
            "unix:/run/x:80",
        ] {
            assert!(!is_http_host_and_port(bad), "{bad}");
        }
    }
}
