//! [`Discovery`](switchtower_cluster::Discovery) on etcd: the only user of `etcd-client`.
//!
//! Must not know what the records say, and decides nothing about them. The command builds an [`EtcdDiscovery`] from
//! [`EtcdOptions`]; everybody else sees the port.
//!
//! # How it is made
//!
//! One task keeps a *session*: a client of one endpoint, proven alive by a read that needs the cluster's leader, and
//! proven again every [`probe_interval`](EtcdOptions::probe_interval). A session that fails is given up with everything
//! on it, and the next endpoint gets one. `etcd-client` would balance calls over endpoints, but it moves no stream off
//! a dead one and notices neither a frozen server nor a black hole, so it never gets more than one endpoint.
//!
//! Every watch and every lease has a task that works on the current session and starts over on the next: a watch with a
//! list and a `Resync`, a lease with a keep-alive and a look whether its keys still stand. Keys are
//! `/switchtower/<escaped cluster>/<relative key>`, values are stored as they are.

mod connection;
mod discovery;
mod error;
mod following;
mod keeping;
mod leases;
mod options;
mod session;
mod snapshot;

pub use discovery::EtcdDiscovery;
pub use error::EtcdError;
pub use options::EtcdOptions;
