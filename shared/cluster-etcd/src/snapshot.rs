//! All records under a prefix at one moment, in pages.
//!
//! etcd limits pages by their number of keys, not by their bytes, so a page that comes out too large is asked for again
//! in halves. Must not mix moments: later pages are read at the first one's revision. Lists and watches begin with it.

use crate::{
    connection::within,
    error::Fault,
    session::{Session, as_i64, as_revision, revision_of},
};
use bytes::Bytes;
use etcd_client::{GetOptions, GetResponse, KeyValue};
use std::time::Duration;
use switchtower_cluster::{Entry, Revision, Snapshot};

/// Keys in the first page.
const PAGE_KEYS: i64 = 1_000;

/// How often a list starts over when its moment is compacted away while it is read.
const ATTEMPTS: usize = 3;

/// The records whose full keys begin with `prefix`; every page may take up to `limit`.
pub(crate) async fn snapshot(
    session: &Session,
    root: &str,
    prefix: &str,
    limit: Duration,
) -> Result<Snapshot, Fault> {
    for _ in 0..ATTEMPTS {
        match (Pages { session, root, prefix, limit }).read().await {
            Err(Fault::Compacted) => {}
            outcome => return outcome,
        }
    }
    Err(Fault::Compacted)
}

struct Pages<'a> {
    session: &'a Session,
    root: &'a str,
    prefix: &'a str,
    limit: Duration,
}

impl Pages<'_> {
    async fn read(&self) -> Result<Snapshot, Fault> {
        let mut from = self.prefix.as_bytes().to_vec();
        let (mut entries, mut revision, mut keys) = (Vec::new(), None, PAGE_KEYS);
        loop {
            let mut page = match self.page(&from, revision, keys).await {
                Err(Fault::TooLarge) if keys > 1 => {
                    keys /= 2;
                    continue;
                }
                page => page?,
            };
            let moment = *revision.get_or_insert_with(|| revision_of(page.header()));
            let read = page.take_kvs();
            let last = read.last().map(|read| read.key().to_vec());
            entries.extend(read.into_iter().filter_map(|read| entry(self.root, read)));
            match last.filter(|_| page.more()) {
                // The smallest key after it.
                Some(mut last) => {
                    last.push(0);
                    from = last;
                }
                None => return Ok(Snapshot { entries, revision: moment }),
            }
        }
    }

    async fn page(&self, from: &[u8], at: Option<Revision>, keys: i64) -> Result<GetResponse, Fault> {
        let options = GetOptions::new().with_range(end_of(self.prefix)).with_limit(keys);
        let options = options.with_revision(at.map_or(0, as_i64));
        within("reading a page of records", self.limit, self.session.page(from.to_vec(), options)).await
    }
}

/// A record with its key relative to the cluster; `None` for a key that is no text, which nobody of us has put.
pub(crate) fn entry(root: &str, read: KeyValue) -> Option<Entry> {
    let (create_revision, revision) = (as_revision(read.create_revision()), as_revision(read.mod_revision()));
    let (key, value) = read.into_key_value();
    let key = relative(root, &key)?.to_owned();
    Some(Entry { key, value: Bytes::from(value), create_revision, revision })
}

/// A key without what the cluster's keys begin with.
pub(crate) fn relative<'a>(root: &str, key: &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(key).ok()?.strip_prefix(root)
}

/// The first key after all that begin with `prefix`.
pub(crate) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // Text holds no byte 255, and a prefix here is never empty: it begins with the cluster's root.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_after_everything_under_it() {
        assert_eq!(end_of("/switchtower/c/"), b"/switchtower/c0");
        let end = end_of("/switchtower/c/ü");
        assert!(end.as_slice() > "/switchtower/c/ü\u{10FFFF}".as_bytes());
        assert!(end.as_slice() <= "/switchtower/c/ý".as_bytes());
    }

    #[test]
    fn keys_lose_their_cluster_and_strangers_are_left_out() {
        assert_eq!(relative("/s/c/", b"/s/c/workers/1"), Some("workers/1"));
        assert_eq!(relative("/s/c/", b"/s/d/workers/1"), None);
        assert_eq!(relative("/s/c/", b"/s/c/\xFF"), None);
    }
}
