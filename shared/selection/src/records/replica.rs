//! What a router says of itself, for people who want to know which ones there are.

use super::{RECORD_VERSION, RecordError, belongs_at, check_version, field, from_json, is_name, to_json};
use serde::{Deserialize, Serialize};
use switchtower_ids::ReplicaId;
use uuid::Uuid;

/// Prefix of every replica record's key.
pub const REPLICAS: &str = "replicas/";

/// One life of one router, at `replicas/<replica>`, under its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The replica's life: a UUID, new at every start.
    pub replica: Uuid,
    /// Base URL of its OpenAI endpoint, `http://host:port`, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// Base URL of its admin endpoint, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
    /// When it started, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// Its release, as `--version` says it.
    pub release: String,
}

impl ReplicaRecord {
    /// The record of `replica`, without addresses.
    #[must_use]
    pub fn new(replica: ReplicaId, started_at_ms: u64, release: &str) -> Self {
        let replica = Uuid::from_u128(replica.0);
        let release = release.to_owned();
        Self { version: RECORD_VERSION, replica, http: None, admin: None, started_at_ms, release }
    }

    /// The record's key.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{REPLICAS}{}", self.replica)
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
        check_version(record.version)?;
        for (name, url) in [("http", &record.http), ("admin", &record.admin)] {
            let url = url.as_deref().unwrap_or("http");
            field(is_name(url), name, &url, "a URL of at most 256 bytes")?;
        }
        field(is_name(&record.release), "release", &record.release, "a name of at most 256 bytes")?;
        belongs_at(key, record.key())?;
        Ok(record)
    }
}
