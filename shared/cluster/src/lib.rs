//! What a process has of its cluster: the ports [`Discovery`] and [`EventBus`], their in-memory implementations, the
//! conformance suites that every implementation runs, and [`DistributedRuntime`], which holds it all.
//!
//! Must not know a technology (adapter crates do) or what is stored and sent (the rooms that own the records do). The
//! selection service, the front end, the endpoint picker and the workers call the ports; only the command picks adapters.
//!
//! # The contract in five rules
//!
//! The traits number their own rules; these five are why the ports exist.
//!
//! 1. A watch begins with one `Resync(snapshot)`, and again after every reconnect or compaction; between two of them no
//!    change is lost. Consumers replace their state on `Resync`, then apply changes.
//! 2. A lease that is lost is got back: new lease, keys put again; no process exits.
//! 3. The bus may lose, delay, repeat and reorder. Everything on it carries its source's incarnation and a sequence
//!    number; every receiver repairs gaps by asking the source for a range or a snapshot.
//! 4. Subjects and keys carry the cluster's name, escaped; two clusters on one server never see each other. Callers
//!    give relative ones (`workers/7`, `kv.7.0`); the implementation prepends the name.
//! 5. Connections to real servers authenticate and renew their credentials; nobody else sees these.

mod bus;
pub mod conformance;
mod discovery;
mod distributed_runtime;
mod headers;
mod health;
mod lease;
pub mod memory;
mod name;
mod queue;
mod subject;
mod subscription;
mod watch;

pub use bus::{BusError, EventBus, Message, Responder};
pub use discovery::{
    Discovery, DiscoveryError, Entry, MAX_KEY_BYTES, MAX_VALUE_BYTES, Revision, Snapshot, WatchEvent,
    check_key, check_prefix, check_put,
};
pub use distributed_runtime::{DistributedRuntime, RuntimeParts};
pub use headers::{Headers, MAX_HEADERS, MAX_HEADERS_BYTES};
pub use health::{HealthRecord, PortHealth};
pub use lease::{Lease, LeaseControl, LeaseId};
pub use name::{ClusterName, escape_token};
pub use queue::QueueLimits;
pub use subject::{check_pattern, check_subject, subject_matches};
pub use subscription::{SUBSCRIPTION_LIMITS, Subscription, SubscriptionSender};
pub use watch::{Sent, WATCH_LIMITS, Watch, WatchSender};
