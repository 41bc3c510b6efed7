//! The claim to a worker id that another worker has: shown until the id is free (`book rule 10`).

use super::{RECORD_VERSION, RecordError, belongs_at, check_version, from_json, to_json};
use serde::{Deserialize, Serialize};
use switchtower_ids::{Incarnation, WorkerId};

/// Prefix of every claim's key.
pub const CLAIMS: &str = "workers-refused/";

/// What a worker writes that finds another one under its id, at `workers-refused/<worker_id>/<incarnation>`, under its own
/// lease. It goes when the worker is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedClaim {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// The id that both claim.
    pub worker_id: WorkerId,
    /// The life that has to wait.
    pub incarnation: Incarnation,
    /// Where that life would be reached.
    pub endpoint: String,
    /// Why it has to wait.
    pub reason: String,
}

impl RefusedClaim {
    /// The claim of a life that is refused for `reason`.
    #[must_use]
    pub fn new(worker_id: WorkerId, incarnation: Incarnation, endpoint: &str, reason: &str) -> Self {
        let (endpoint, reason) = (endpoint.to_owned(), reason.to_owned());
        Self { version: RECORD_VERSION, worker_id, incarnation, endpoint, reason }
    }

    /// The claim's key.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{CLAIMS}{}/{}", self.worker_id, self.incarnation)
    }

    /// The claim as it stands in the store.
    ///
    /// # Errors
    /// Never for the types of this record; the serializer's own error otherwise.
    pub fn to_json(&self) -> Result<Vec<u8>, RecordError> {
        to_json(self)
    }

    /// Reads and checks the claim found at `key`.
    ///
    /// # Errors
    /// Says what is wrong with it, by field.
    pub fn parse(key: &str, json: &[u8]) -> Result<Self, RecordError> {
        let claim: Self = from_json(json)?;
        check_version(claim.version)?;
        belongs_at(key, claim.key())?;
        Ok(claim)
    }
}
