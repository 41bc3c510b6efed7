//! Discovery on etcd, on every version found: the port's contract, the field reports it stands for, users and TLS.
//!
//! Servers are frozen, killed, restarted with and without their data, compacted, cut off and stalled. Each test starts
//! its own; see `servers::etcd`.

#[path = "etcd_discovery/conformance.rs"]
mod conformance;
#[path = "etcd_discovery/faults.rs"]
mod faults;
#[path = "etcd_discovery/follower.rs"]
mod follower;
#[path = "etcd_discovery/lifecycle.rs"]
mod lifecycle;
#[path = "etcd_discovery/members.rs"]
mod members;
#[path = "etcd_discovery/rig.rs"]
mod rig;
#[path = "etcd_discovery/security.rs"]
mod security;
