//! [`EventBus`](switchtower_cluster::EventBus) on NATS: the only user of `async-nats`.
//!
//! Must not know what messages say. The port's contract is the law here; its conformance suite runs on real servers in
//! the workspace's tests. Only the command makes a [`NatsBus`]; everyone else sees the port.
//!
//! # On the server
//! A cluster's messages have subjects `switchtower.<cluster>.<subject>`, answers go to `_INBOX.switchtower.<cluster>.>`; the
//! cluster's name is escaped. A user that may publish and subscribe to these two has all that is needed:
//! `switchtower.<cluster>.>` and `_INBOX.switchtower.<cluster>.>`. JetStream is not used.
//!
//! # What this adds to its client library
//! - A subscription is in force when `subscribe` returns: a message to ourselves has come back from the server.
//! - While the server is away calls fail at once, and on a connection that takes no more data they fail after
//!   [`NatsOptions::call_limit`]: nothing queues without bound.
//! - Requests that nobody answers leave nothing behind, and those under way when the connection goes end right then.
//! - Messages lost because this process was slow are counted for their subscription, in this queue or in the library's.
//! - Credential files are read again for every connection, so that renewed ones are used.

mod bus;
mod connection;
mod credentials;
mod error;
mod headers;
mod inbox;
mod monitor;
mod options;
mod subscriptions;
mod tls;

pub use bus::NatsBus;
pub use error::NatsError;
pub use options::NatsOptions;
