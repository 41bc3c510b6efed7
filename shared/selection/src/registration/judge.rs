//! What follows from what stands at a worker's key. Pure.

use crate::records::WorkerRecord;
use switchtower_cluster::{Entry, Revision};

/// What a worker finds at its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Its record, as it should be.
    Own(Revision),
    /// Nothing, or what is its to replace: put the record if the key still stands so.
    Free(Option<Revision>),
    /// Somebody else's record.
    Taken {
        /// Whose, and what to do about it.
        reason: String,
    },
    /// A later life's record, from the same endpoint.
    Replaced,
}

/// Judges `found` for the life that `record` describes, which has been registered before or not.
///
/// Only one process at a time listens at an endpoint. So a record from the same one is of a former life, unless this life
/// has stood here itself: then it is of a later one.
pub(super) fn judge(found: Option<&Entry>, record: &WorkerRecord, was_registered: bool) -> Found {
    let Some(entry) = found else { return Found::Free(None) };
    let standing = match WorkerRecord::parse(&entry.key, &entry.value) {
        Ok(standing) => standing,
        Err(error) => {
            let reason = format!(
                "what stands at `{}` is not understood ({error}): delete it, or start this worker under another id",
                entry.key
            );
            return Found::Taken { reason };
        }
    };
    if standing == *record {
        return Found::Own(entry.revision);
    }
    if standing.incarnation == record.incarnation {
        return Found::Free(Some(entry.revision));
    }
    if standing.endpoint != record.endpoint {
        let (worker, endpoint) = (standing.worker_id, standing.endpoint);
        let reason = format!(
            "worker {worker} is registered from {endpoint}, until that worker's lease ends: stop it, or start this one \
             under another id"
        );
        return Found::Taken { reason };
    }
    if was_registered { Found::Replaced } else { Found::Free(Some(entry.revision)) }
}
