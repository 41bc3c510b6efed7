//! How many files and sockets the process may hold open. A router's limit is what its machine allows, not the low number
//! that shells hand out for the sake of old programs.
//!
//! Must not decide what to do when even that is not enough; the HTTP server and its callers do. Called once, by the command.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one. Where the system refuses, what was allowed before still is.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit { current: limit.maximum, ..limit };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => {
            tracing::debug!(before = ?limit.current, now = ?limit.maximum, "raised the limit of open files");
        }
        Err(error) => {
            tracing::debug!(%error, limit = ?limit.current, "cannot raise the limit of open files");
        }
    }
}
