//! The port itself: what callers see of a connection to etcd.
//!
//! Checks what is given, and hands it to the session, the leases or a new watch. Must not wait for a server at start.

use crate::{
    EtcdError, EtcdOptions,
    connection::{Connection, Repeat},
    following::Following,
    keeping::Keeping,
    leases::{Leases, Put},
    session::Session,
    snapshot::{entry, snapshot},
};
use async_trait::async_trait;
use bytes::Bytes;
use std::{fmt, sync::Arc, time::Duration};
use switchtower_cluster::{
    ClusterName, Discovery, DiscoveryError, Entry, Lease, LeaseControl, LeaseId, PortHealth, Revision,
    Snapshot, WATCH_LIMITS, Watch, check_key, check_prefix, check_put,
};
use switchtower_runtime::TaskGroup;
use tokio::time::timeout;

/// One process's connection to its cluster's records in etcd. Clones are the same connection.
///
/// It ends, with its watches, when the last clone and the last lease are dropped, or when the task group that it was
/// given shuts down and no lease is left: an orderly shutdown can still revoke its leases. What is called after that
/// fails with `Unavailable`.
#[derive(Clone)]
pub struct EtcdDiscovery {
    handle: Arc<Handle>,
}

struct Handle {
    connection: Arc<Connection>,
    leases: Arc<Leases>,
    tasks: TaskGroup,
}

impl EtcdDiscovery {
    /// A connection to the records of `cluster`, whose tasks live in `tasks`.
    ///
    /// Does not wait for etcd: with none there it says so once, goes on trying, and is good when etcd comes. Calls made
    /// meanwhile fail with `Unavailable`; watches begin later.
    ///
    /// # Errors
    /// Options that cannot work, or a TLS file that is not there: see [`EtcdError`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn connect(
        options: EtcdOptions,
        cluster: &ClusterName,
        tasks: &TaskGroup,
    ) -> Result<Self, EtcdError> {
        let root = format!("/switchtower/{}/", cluster.escaped());
        let connection = Arc::new(Connection::new(options, root)?);
        let leases = Arc::new(Leases::new(Arc::clone(&connection)));
        let shutdown = tasks.shutdown_token();
        let tasks = tasks.child_with_token("etcd", connection.closed.clone());
        let (kept, until, closed) = (Arc::clone(&connection), Arc::clone(&leases), connection.closed.clone());
        tasks.spawn_until_shutdown("connection", async move { kept.run().await });
        tasks.spawn_until_shutdown("end", async move {
            shutdown.cancelled().await;
            until.until_none().await;
            closed.cancel();
        });
        Ok(Self { handle: Arc::new(Handle { connection, leases, tasks }) })
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.handle.connection.root)
    }
}

#[async_trait]
impl Discovery for EtcdDiscovery {
    async fn put(&self, key: &str, value: Bytes, lease: Option<&Lease>) -> Result<Revision, DiscoveryError> {
        check_put(key, &value)?;
        let operation = "put a record";
        let (full, lease) = (self.full(key), lease.map(Lease::id));
        let put = self.handle.leases.put(Put { operation, full, value, lease, expected: None }).await?;
        // A put without a condition always happens.
        Ok(put.unwrap_or_default())
    }

    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        lease: Option<&Lease>,
        expected: Option<Revision>,
    ) -> Result<Option<Revision>, DiscoveryError> {
        check_put(key, &value)?;
        let operation = "put a record";
        let (full, lease) = (self.full(key), lease.map(Lease::id));
        self.handle.leases.put(Put { operation, full, value, lease, expected: Some(expected) }).await
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>, DiscoveryError> {
        check_key(key)?;
        let (connection, full) = (&self.handle.connection, &self.full(key));
        let get = async |session: Arc<Session>| session.get(full).await;
        let found = connection.call(Repeat::Freely, get).await;
        let found = found.map_err(|fault| fault.into_error("get a record"))?;
        Ok(found.and_then(|found| entry(&connection.root, found)))
    }

    async fn list(&self, prefix: &str) -> Result<Snapshot, DiscoveryError> {
        check_prefix(prefix)?;
        let (connection, full) = (&self.handle.connection, &self.full(prefix));
        let limit = connection.options.call_timeout;
        let list = async |session: Arc<Session>| snapshot(&session, &connection.root, full, limit).await;
        connection.call(Repeat::Freely, list).await.map_err(|fault| fault.into_error("list records"))
    }

    async fn delete(&self, key: &str) -> Result<bool, DiscoveryError> {
        check_key(key)?;
        let deleted = self.handle.leases.delete(&self.full(key)).await;
        deleted.map_err(|fault| fault.into_error("delete a record"))
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease, DiscoveryError> {
        if ttl < Duration::from_secs(1) {
            return Err(DiscoveryError::InvalidTtl { ttl_ms: ttl.as_millis() });
        }
        let handle = &self.handle;
        // A grant that got no answer leaves at most a lease without keys, which runs out.
        let grant = async |session: Arc<Session>| session.grant(ttl).await;
        let granted = handle.connection.call(Repeat::Freely, grant).await;
        let granted = granted.map_err(|fault| fault.into_error("grant a lease"))?;
        let (id, held) = handle.leases.insert(granted, ttl);
        let keeping =
            Keeping { connection: Arc::clone(&handle.connection), leases: Arc::clone(&handle.leases), held };
        handle.tasks.spawn_named("lease", keeping.run());
        Ok(Lease::new(id, ttl, Arc::clone(handle) as Arc<dyn LeaseControl>))
    }

    async fn watch(&self, prefix: &str) -> Result<Watch, DiscoveryError> {
        check_prefix(prefix)?;
        let (events, watch) = Watch::channel(WATCH_LIMITS);
        let connection = Arc::clone(&self.handle.connection);
        let following = Following { connection, prefix: self.full(prefix), events };
        self.handle.tasks.spawn_until_shutdown("watch", following.run());
        Ok(watch)
    }

    fn health(&self) -> PortHealth {
        self.handle.connection.health.now()
    }
}

#[async_trait]
impl LeaseControl for Handle {
    async fn revoke(&self, lease: LeaseId) -> Result<(), DiscoveryError> {
        let Some(held) = self.leases.end(lease) else {
            return Ok(());
        };
        let limit = self.connection.options.call_timeout;
        match timeout(limit, held.revoked.cancelled()).await {
            Ok(()) => Ok(()),
            Err(_) => {
                let reason = format!("no answer within {} ms", limit.as_millis());
                Err(DiscoveryError::Unavailable { operation: "revoke a lease", reason })
            }
        }
    }

    fn release(&self, lease: LeaseId) {
        self.leases.end(lease);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.connection.closed.cancel();
    }
}

impl fmt::Debug for EtcdDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdDiscovery")
            .field("root", &self.handle.connection.root)
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
