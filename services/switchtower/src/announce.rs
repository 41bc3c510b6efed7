//! A router's own record in the cluster, so that `ctl replicas` shows who is there. Called by `up` and `router`.

use crate::failure::Failure;
use std::{
    net::SocketAddr,
    time::{SystemTime, UNIX_EPOCH},
};
use switchtower_cluster::DistributedRuntime;
use switchtower_frontend::BoundFrontend;
use switchtower_ids::ReplicaId;
use switchtower_runtime::TaskGroup;
use switchtower_selection::{
    records::ReplicaRecord,
    registration::{self, Announcement},
};

/// Announces the router until the announcement is ended; a task in `tasks` does.
pub(crate) fn announce(
    frontend: &BoundFrontend,
    runtime: &DistributedRuntime,
    tasks: &TaskGroup,
) -> Result<Announcement, Failure> {
    let url = |address: SocketAddr| format!("http://{address}");
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let started_at_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let mut record =
        ReplicaRecord::new(ReplicaId(runtime.replica()), started_at_ms, env!("CARGO_PKG_VERSION"));
    record.http = Some(url(frontend.local_addr()));
    record.admin = frontend.admin_addr().map(url);
    registration::announce(runtime, &record, tasks).map_err(Failure::start)
}
