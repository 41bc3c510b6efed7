//! The port `Discovery`: records that live as long as their owners, and the changes to them.
//!
//! Must not know what the records say. Implemented in memory here and on etcd in its adapter; called by whoever announces
//! itself (workers, replicas) and whoever follows the announcements (the registry).

use crate::{Lease, PortHealth, Watch};
use async_trait::async_trait;
use bytes::Bytes;
use std::{fmt, time::Duration};

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1_024;

/// Largest value, in bytes: below the request limit of the stores in use.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;

/// A moment in the store's history. Every change has a greater one than all changes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key, relative to the cluster: `workers/7`.
    pub key: String,
    /// The value; never longer than [`MAX_VALUE_BYTES`].
    pub value: Bytes,
    /// When the key came into being. Overwriting keeps it; deleting and putting again gives a new one.
    pub create_revision: Revision,
    /// When the value was last put.
    pub revision: Revision,
}

/// All entries under a prefix at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The entries, sorted by key.
    pub entries: Vec<Entry>,
    /// The moment they stood so.
    pub revision: Revision,
}

/// What a watch delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The state from here on: replace what you have, including what is no longer in it.
    Resync(Snapshot),
    /// A key was created or its value changed; compare values, not only keys.
    Put(Entry),
    /// A key was deleted, by hand or with its lease.
    Delete {
        /// The key, relative to the cluster.
        key: String,
        /// When it was deleted.
        revision: Revision,
    },
}

/// Why discovery refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// A key or prefix that no store would take.
    #[error("key `{key}` is not valid: {reason}")]
    InvalidKey {
        /// What was given.
        key: String,
        /// What is wrong, and what would be right.
        reason: &'static str,
    },
    /// A value beyond the limit.
    #[error(
        "the value of key `{key}` has {bytes} bytes, more than the limit of {limit}: split it or store less"
    )]
    ValueTooLarge {
        /// Its key.
        key: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A time to live that no store would take.
    #[error("a lease of {ttl_ms} ms is not possible: ask for at least 1000 ms")]
    InvalidTtl {
        /// What was asked for.
        ttl_ms: u128,
    },
    /// A lease that was ended, or granted by another connection.
    #[error("lease {lease} is not known here: grant one on this connection and keep its handle")]
    UnknownLease {
        /// The lease's name.
        lease: crate::LeaseId,
    },
    /// The store was reached and refuses; the same call will be refused again.
    #[error(
        "cannot {operation}: the store refuses ({reason}); check the permissions of the user that is configured for it"
    )]
    Refused {
        /// What was attempted.
        operation: &'static str,
        /// What the store says.
        reason: String,
    },
    /// The store cannot be reached now. What stands in it stays as it is; watches resume by themselves.
    #[error("cannot {operation}: discovery is not reachable ({reason}); try again later")]
    Unavailable {
        /// What was attempted.
        operation: &'static str,
        /// What the connection says.
        reason: String,
    },
}

/// Records under leases, and watches on them. The rules an implementation keeps, numbered as in the crate's
/// documentation and in the functions of [`conformance`](crate::conformance):
///
/// 1. A watch begins with exactly one `Resync`, holding the state at some revision at or after the call. Every later
///    change under its prefix follows once, in the order of revisions, until the next `Resync`, which comes after a
///    reconnect, a compaction or an overflow and holds all that was missed, deletions included.
/// 2. A lease lives while its handle does. When the store loses it, by whatever cause, the implementation gets a new one
///    and puts its keys again with their latest values; the handle stays good. A key that stands under someone else's
///    lease by then is left alone: it belongs to a later life.
/// 3. (The bus.)
/// 4. Keys are relative; clusters never see each other.
/// 5. (Real connections.)
/// 6. Dropping a lease's handle, or revoking it, removes the keys that still stand under it, and no others. Putting a key
///    again, under another lease or none, moves it out of the former one.
/// 7. Revisions rise with every change. `create_revision` stays as long as the key exists without a break. (A store that
///    was restarted without its data begins again at 1; what follows is a `Resync`.)
/// 8. `list` and `Resync` are of one moment and sorted by key. A prefix is compared byte by byte: `workers/1` covers
///    `workers/10`, so end it with `/`. The empty prefix covers the cluster.
/// 9. What cannot be stored is refused with an error that names it: see [`check_key`] and [`MAX_VALUE_BYTES`].
/// 10. While the store cannot be reached, calls fail with `Unavailable` in bounded time and watches are silent. A watch
///     may be asked for at any time: one that is made meanwhile begins when the store is reached.
/// 17. `put_if` compares and puts in one step: of two callers who expect the same, one at most succeeds. One that does not
///     succeed changes nothing, and its lease does not put the key again later.
#[async_trait]
pub trait Discovery: Send + Sync + 'static {
    /// Puts a value, under a lease or for good. Returns the revision of the change.
    async fn put(&self, key: &str, value: Bytes, lease: Option<&Lease>) -> Result<Revision, DiscoveryError>;

    /// As [`put`](Self::put), if the key stands as `expected` says: last put at that revision, or absent for `None`. Returns
    /// `None`, and changes nothing, where it does not. After [`DiscoveryError::Unavailable`] it may have been put: look again.
    async fn put_if(
        &self,
        key: &str,
        value: Bytes,
        lease: Option<&Lease>,
        expected: Option<Revision>,
    ) -> Result<Option<Revision>, DiscoveryError>;

    /// The entry of one key.
    async fn get(&self, key: &str) -> Result<Option<Entry>, DiscoveryError>;

    /// All entries under a prefix.
    async fn list(&self, prefix: &str) -> Result<Snapshot, DiscoveryError>;

    /// Deletes a key; `false` if there was none.
    async fn delete(&self, key: &str) -> Result<bool, DiscoveryError>;

    /// Grants a lease of at least one second and keeps it until the handle goes.
    async fn grant(&self, ttl: Duration) -> Result<Lease, DiscoveryError>;

    /// Watches all keys under a prefix. Fails only where the prefix is refused.
    async fn watch(&self, prefix: &str) -> Result<Watch, DiscoveryError>;

    /// How the connection is doing.
    fn health(&self) -> PortHealth;
}

/// Refuses what is no key: empty, longer than [`MAX_KEY_BYTES`], with a leading or trailing `/`, an empty segment or a
/// control character.
///
/// # Errors
/// [`DiscoveryError::InvalidKey`], which says what is wrong.
pub fn check_key(key: &str) -> Result<(), DiscoveryError> {
    if key.is_empty() {
        return Err(invalid(key, "it is empty; write for example `workers/7`"));
    }
    if key.ends_with('/') {
        return Err(invalid(key, "it ends with `/`; name a record, not a folder"));
    }
    check_prefix(key)
}

/// Refuses what is no prefix: as [`check_key`], but the empty one and a trailing `/` are fine.
///
/// # Errors
/// [`DiscoveryError::InvalidKey`], which says what is wrong.
pub fn check_prefix(prefix: &str) -> Result<(), DiscoveryError> {
    if prefix.len() > MAX_KEY_BYTES {
        return Err(invalid(prefix, "it has more than 1024 bytes"));
    }
    if prefix.starts_with('/') {
        return Err(invalid(prefix, "it starts with `/`; keys are relative to the cluster"));
    }
    if prefix.contains("//") {
        return Err(invalid(prefix, "it has an empty segment"));
    }
    if prefix.chars().any(char::is_control) {
        return Err(invalid(prefix, "it has a control character; escape names with `escape_token`"));
    }
    Ok(())
}

/// Refuses what no store would take: a key that [`check_key`] refuses, a value beyond [`MAX_VALUE_BYTES`].
///
/// # Errors
/// [`DiscoveryError::InvalidKey`] or [`DiscoveryError::ValueTooLarge`].
pub fn check_put(key: &str, value: &[u8]) -> Result<(), DiscoveryError> {
    check_key(key)?;
    if value.len() > MAX_VALUE_BYTES {
        let (key, bytes) = (key.to_owned(), value.len());
        return Err(DiscoveryError::ValueTooLarge { key, bytes, limit: MAX_VALUE_BYTES });
    }
    Ok(())
}

fn invalid(key: &str, reason: &'static str) -> DiscoveryError {
    // The key may be hostile: show enough of it to be found.
    let key = key.chars().take(128).flat_map(char::escape_debug).collect();
    DiscoveryError::InvalidKey { key, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_prefixes_are_checked() {
        for key in ["workers/7", "models/a%2Fb", "settings", "ü/1"] {
            assert_eq!((check_key(key), check_prefix(key)), (Ok(()), Ok(())), "{key}");
        }
        for key in ["/workers", "a//b", "a\nb", "a/\0"] {
            assert!(check_key(key).is_err() && check_prefix(key).is_err(), "{key:?}");
        }
        for folder in ["", "workers/"] {
            assert!(check_key(folder).is_err() && check_prefix(folder).is_ok(), "{folder:?}");
        }
        assert!(check_key(&"k".repeat(MAX_KEY_BYTES)).is_ok());
        assert!(check_key(&"k".repeat(MAX_KEY_BYTES + 1)).is_err());
    }

    #[test]
    fn a_refused_key_is_shown_escaped_and_short() {
        let error = check_key(&format!("a\n{}", "k".repeat(5_000))).unwrap_err().to_string();
        assert!(error.contains(r"a\nkkk") && error.len() < 300, "{error}");
    }
}
