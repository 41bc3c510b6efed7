//! The leases of one connection: what stands under each, and the changes that must not cross one another.
//!
//! A change of a leased key and the getting back of a lost lease take turns, so that what is put again is always the
//! latest. Must not keep a lease alive: [`keeping`](crate::keeping) does that, one task per lease.

use crate::{
    connection::{Connection, Repeat, within},
    error::Fault,
    session::{ServerLease, Session, Stands},
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};
use switchtower_cluster::{DiscoveryError, LeaseId, Revision};
use switchtower_runtime::CancellationToken;
use tokio::{
    sync::{Mutex as AsyncMutex, MutexGuard, Notify},
    time::{Instant, sleep_until, timeout},
};

/// A lost lease is asked for again at most this often: a store in trouble is not helped by more.
const GRANT_INTERVAL: Duration = Duration::from_secs(1);

/// All leases that one connection keeps.
pub(crate) struct Leases {
    connection: Arc<Connection>,
    table: Mutex<HashMap<LeaseId, Arc<Held>>>,
    /// Changes take turns.
    turn: AsyncMutex<()>,
    /// Told when a lease leaves the table.
    left: Notify,
}

/// One lease.
pub(crate) struct Held {
    pub(crate) ttl: Duration,
    /// Cancelled when the handle is gone: the lease is to end.
    pub(crate) ended: CancellationToken,
    /// Cancelled when etcd has ended it.
    pub(crate) revoked: CancellationToken,
    state: Mutex<HeldState>,
}

struct HeldState {
    server: ServerLease,
    /// The one before it, whose keys go or are gone.
    former: Option<ServerLease>,
    granted: Instant,
    /// By full key.
    keys: BTreeMap<String, Bytes>,
}

/// A turn to change something.
pub(crate) struct Turn<'a> {
    _turn: MutexGuard<'a, ()>,
}

impl Leases {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self { connection, table: Mutex::default(), turn: AsyncMutex::new(()), left: Notify::new() }
    }

    /// Takes a lease that was just granted into the table. Its name stays that of the first grant.
    pub(crate) fn insert(&self, server: ServerLease, ttl: Duration) -> (LeaseId, Arc<Held>) {
        let id = LeaseId(server.unsigned_abs());
        let state = HeldState { server, former: None, granted: Instant::now(), keys: BTreeMap::new() };
        let held = Arc::new(Held {
            ttl,
            ended: CancellationToken::new(),
            revoked: CancellationToken::new(),
            state: Mutex::new(state),
        });
        self.table.lock().insert(id, Arc::clone(&held));
        (id, held)
    }

    /// Takes a lease out of the table and has its task end it. `None` if that was done before.
    pub(crate) fn end(&self, lease: LeaseId) -> Option<Arc<Held>> {
        let held = self.table.lock().remove(&lease);
        if let Some(held) = &held {
            held.ended.cancel();
            self.left.notify_waiters();
        }
        held
    }

    /// Waits until no lease is kept.
    pub(crate) async fn until_none(&self) {
        loop {
            let left = self.left.notified();
            if self.table.lock().is_empty() {
                return;
            }
            left.await;
        }
    }

    /// A turn, if one comes within the time that calls have.
    pub(crate) async fn turn(&self) -> Result<Turn<'_>, Fault> {
        let limit = self.connection.options.call_timeout;
        match timeout(limit, self.turn.lock()).await {
            Ok(turn) => Ok(Turn { _turn: turn }),
            Err(_) => Err(Fault::timed_out("the change before this one", limit)),
        }
    }

    /// Puts a value, and remembers it if it is leased. `expected`: as `put_if` has it; absent for a plain put.
    pub(crate) async fn put(&self, put: Put) -> Result<Option<Revision>, DiscoveryError> {
        let failed = |fault: Fault| fault.into_error(put.operation);
        let turn = self.turn().await.map_err(failed)?;
        let held = put.lease.map(|lease| self.find(lease)).transpose()?;
        let lease = held.as_deref().map(Held::server);
        let revision = match (self.try_put(&put, lease).await, held.as_deref().zip(lease)) {
            (Err(Fault::LeaseGone), Some((held, lost))) if !held.ended.is_cancelled() => {
                self.regain_for_call(&turn, held, lost).await.map_err(failed)?;
                self.try_put(&put, Some(held.server())).await
            }
            (outcome, _) => outcome,
        };
        let revision = revision.map_err(failed)?;
        if revision.is_some() {
            self.forget(&put.full);
            if let Some(held) = held {
                held.state.lock().keys.insert(put.full, put.value);
            }
        }
        Ok(revision)
    }

    async fn try_put(&self, put: &Put, lease: Option<ServerLease>) -> Result<Option<Revision>, Fault> {
        let attempt = async |session: Arc<Session>| match put.expected {
            Some(expected) => session.put_if(&put.full, put.value.clone(), lease, expected).await,
            None => session.put(&put.full, put.value.clone(), lease).await.map(Some),
        };
        self.connection.call(Repeat::Never, attempt).await
    }

    /// A put that finds its lease lost gets it back at once.
    async fn regain_for_call(&self, turn: &Turn<'_>, held: &Held, lost: ServerLease) -> Result<(), Fault> {
        let regain = async |session: Arc<Session>| self.regain(turn, &session, (held, lost)).await;
        self.connection.call(Repeat::Freely, regain).await
    }

    /// Deletes a key; it is not put again.
    pub(crate) async fn delete(&self, full: &str) -> Result<bool, Fault> {
        let _turn = self.turn().await?;
        let deleted =
            self.connection.call(Repeat::Never, async |session: Arc<Session>| session.delete(full).await);
        let deleted = deleted.await?;
        self.forget(full);
        Ok(deleted)
    }

    /// A new lease for a lost one, with its keys put again. If there is a new one by now, only its keys are looked after.
    pub(crate) async fn regain(
        &self,
        turn: &Turn<'_>,
        session: &Session,
        (held, lost): (&Held, ServerLease),
    ) -> Result<(), Fault> {
        if held.server() == lost {
            self.grant_again(session, held).await?;
        }
        self.put_again(turn, session, held).await
    }

    async fn grant_again(&self, session: &Session, held: &Held) -> Result<(), Fault> {
        let next = held.state.lock().granted + GRANT_INTERVAL;
        sleep_until(next).await;
        let limit = self.connection.options.call_timeout;
        let granted = within("granting a lease", limit, session.grant(held.ttl)).await?;
        {
            let mut state = held.state.lock();
            state.former = Some(state.server);
            (state.server, state.granted) = (granted, Instant::now());
        }
        tracing::warn!(ttl_ms = held.ttl.as_millis(), "etcd lost a lease; a new one was granted");
        Ok(())
    }

    /// Puts the keys of a lease that do not stand, and forgets those that stand under someone else's by now.
    pub(crate) async fn put_again(
        &self,
        _turn: &Turn<'_>,
        session: &Session,
        held: &Held,
    ) -> Result<(), Fault> {
        let limit = self.connection.options.call_timeout;
        let (server, former, keys) = held.contents();
        for (key, value) in keys {
            let put = session.put_if_absent(&key, value, server);
            match within("putting a record again", limit, put).await? {
                Stands::PutNow => {}
                Stands::Under(lease) if lease == server => {}
                Stands::Under(lease) if Some(lease) == former => {
                    return Err(Fault::Unreachable("a record still stands under the lost lease".to_owned()));
                }
                Stands::Under(_) => {
                    tracing::warn!(key, "a record belongs to someone else by now and is left alone");
                    held.state.lock().keys.remove(&key);
                }
            }
        }
        Ok(())
    }

    fn find(&self, lease: LeaseId) -> Result<Arc<Held>, DiscoveryError> {
        let held = self.table.lock().get(&lease).cloned();
        held.ok_or(DiscoveryError::UnknownLease { lease })
    }

    /// The key leaves whichever lease it was under.
    fn forget(&self, full: &str) {
        for held in self.table.lock().values() {
            held.state.lock().keys.remove(full);
        }
    }
}

/// A put, in one value.
pub(crate) struct Put {
    pub(crate) operation: &'static str,
    pub(crate) full: String,
    pub(crate) value: Bytes,
    pub(crate) lease: Option<LeaseId>,
    /// What must stand there for the put to happen; absent: whatever does.
    pub(crate) expected: Option<Option<Revision>>,
}

impl Held {
    /// Its present name at etcd.
    pub(crate) fn server(&self) -> ServerLease {
        self.state.lock().server
    }

    fn contents(&self) -> (ServerLease, Option<ServerLease>, BTreeMap<String, Bytes>) {
        let state = self.state.lock();
        (state.server, state.former, state.keys.clone())
    }
}
