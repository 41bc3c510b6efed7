//! A session: a client of one endpoint, from the first answer to the first failure.
//!
//! The only place that calls etcd for more than a stream; every function is one question. Must not retry or wait:
//! [`connection`](crate::connection) bounds every call and decides what a failure means.

use crate::error::{Fault, users_are_disabled};
use bytes::Bytes;
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, GetOptions, GetResponse, KeyValue, KvClient, LeaseClient,
    PutOptions, ResponseHeader, Txn, TxnOp, TxnOpResponse, TxnResponse, WatchClient,
};
use std::time::Duration;
use switchtower_cluster::Revision;
use switchtower_runtime::CancellationToken;

/// What is read in one answer at most; larger lists come in pages.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// The longest lease that etcd grants.
const TTL_MAX_S: u64 = 9_000_000_000;

/// A lease's name at etcd.
pub(crate) type ServerLease = i64;

/// A client of one endpoint.
pub(crate) struct Session {
    client: Client,
    /// Cancelled when the session is given up: streams start over on the next one, and new calls go there.
    pub(crate) lost: CancellationToken,
    /// Cancelled when also calls under way will get no answer. Not so when only the token is old.
    pub(crate) dead: CancellationToken,
}

/// What stands at a key when a lost lease puts its keys again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// Nothing did; it is put.
    PutNow,
    /// A value under this lease, or under none (0).
    Under(ServerLease),
}

impl Session {
    /// Connects to one endpoint and authenticates.
    pub(crate) async fn open(
        endpoint: &str,
        options: &ConnectOptions,
        without_user: &ConnectOptions,
    ) -> Result<Self, Fault> {
        let client = match Client::connect([endpoint], Some(options.clone())).await.map_err(Fault::from) {
            Err(fault) if users_are_disabled(&fault) => {
                Client::connect([endpoint], Some(without_user.clone())).await?
            }
            client => client?,
        };
        Ok(Self { client, lost: CancellationToken::new(), dead: CancellationToken::new() })
    }

    /// A sign of life, of the cluster's leader too.
    pub(crate) async fn probe(&self, root: &str) -> Result<(), Fault> {
        self.kv().get(root, Some(GetOptions::new().with_count_only())).await?;
        Ok(())
    }

    /// One key's value.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<KeyValue>, Fault> {
        let mut answer = self.kv().get(key, None).await?;
        Ok(answer.take_kvs().into_iter().next())
    }

    /// One page of a range, of keys from `from` up to but not including `end`.
    pub(crate) async fn page(&self, from: Vec<u8>, options: GetOptions) -> Result<GetResponse, Fault> {
        Ok(self.kv().get(from, Some(options)).await?)
    }

    /// Puts a value.
    pub(crate) async fn put(
        &self,
        key: &str,
        value: Bytes,
        lease: Option<ServerLease>,
    ) -> Result<Revision, Fault> {
        let answer = self.kv().put(key, Vec::from(value), Some(under(lease))).await?;
        Ok(revision_of(answer.header()))
    }

    /// Puts a value if the key was last put at `expected`, or is absent for `None`.
    pub(crate) async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        lease: Option<ServerLease>,
        expected: Option<Revision>,
    ) -> Result<Option<Revision>, Fault> {
        let compare = match expected {
            // No key was ever put at 0, and etcd takes it for an absent one.
            Some(Revision(0)) => return Ok(None),
            Some(revision) => Compare::mod_revision(key, CompareOp::Equal, as_i64(revision)),
            None => Compare::create_revision(key, CompareOp::Equal, 0),
        };
        let put = TxnOp::put(key, Vec::from(value), Some(under(lease)));
        let answer = self.kv().txn(Txn::new().when([compare]).and_then([put])).await?;
        Ok(answer.succeeded().then(|| revision_of(answer.header())))
    }

    /// Puts a value under a lease if the key is absent; else says under which lease it stands.
    pub(crate) async fn put_if_absent(
        &self,
        key: &str,
        value: Bytes,
        lease: ServerLease,
    ) -> Result<Stands, Fault> {
        let absent = Compare::create_revision(key, CompareOp::Equal, 0);
        let put = TxnOp::put(key, Vec::from(value), Some(under(Some(lease))));
        let look = TxnOp::get(key, Some(GetOptions::new().with_keys_only()));
        let answer = self.kv().txn(Txn::new().when([absent]).and_then([put]).or_else([look])).await?;
        if answer.succeeded() {
            return Ok(Stands::PutNow);
        }
        Ok(Stands::Under(lease_seen(&answer)))
    }

    /// Deletes a key; `false` if there was none.
    pub(crate) async fn delete(&self, key: &str) -> Result<bool, Fault> {
        Ok(self.kv().delete(key, None).await?.deleted() > 0)
    }

    /// Grants a lease of at least `ttl`.
    pub(crate) async fn grant(&self, ttl: Duration) -> Result<ServerLease, Fault> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let seconds = i64::try_from(seconds.min(TTL_MAX_S)).unwrap_or(i64::MAX);
        Ok(self.lease().grant(seconds, None).await?.id())
    }

    /// Ends a lease and removes its keys. One that is gone already is fine.
    pub(crate) async fn revoke(&self, lease: ServerLease) -> Result<(), Fault> {
        match self.lease().revoke(lease).await.map_err(Fault::from) {
            Ok(_) | Err(Fault::LeaseGone) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// For streams of keep-alives.
    pub(crate) fn lease(&self) -> LeaseClient {
        self.client.lease_client()
    }

    /// For streams of changes.
    pub(crate) fn watch(&self) -> WatchClient {
        self.client.watch_client().max_decoding_message_size(ANSWER_BYTES)
    }

    fn kv(&self) -> KvClient {
        self.client.kv_client().max_decoding_message_size(ANSWER_BYTES)
    }
}

fn under(lease: Option<ServerLease>) -> PutOptions {
    PutOptions::new().with_lease(lease.unwrap_or(0))
}

fn lease_seen(answer: &TxnResponse) -> ServerLease {
    let seen = answer.op_responses().into_iter().next();
    match seen {
        Some(TxnOpResponse::Get(seen)) => seen.kvs().first().map_or(0, KeyValue::lease),
        _ => 0,
    }
}

/// The moment that an answer speaks of.
pub(crate) fn revision_of(header: Option<&ResponseHeader>) -> Revision {
    as_revision(header.map_or(0, ResponseHeader::revision))
}

/// etcd's revisions begin at 1 and are signed.
pub(crate) fn as_revision(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}

/// As [`as_revision`], the other way round.
pub(crate) fn as_i64(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}
