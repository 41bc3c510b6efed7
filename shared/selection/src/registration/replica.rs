//! A router's own record: who is there, for people. Nobody else writes at its key, so nothing has to be judged.

use crate::records::{RecordError, ReplicaRecord};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use switchtower_cluster::{Discovery, DiscoveryError, DistributedRuntime, Lease};
use switchtower_runtime::{
    CancellationToken, TaskGroup,
    retry::{RetryTimes, retry_dependent},
};
use tokio::sync::watch;

/// How long a record outlives a router that crashed.
const TTL: Duration = Duration::from_secs(10);

/// How long the end waits for the store.
const END_DEADLINE: Duration = Duration::from_secs(5);

/// A router's record. Dropping it takes the record back, as soon as can be.
#[derive(Debug)]
pub struct Announcement {
    stop: CancellationToken,
    stands: watch::Receiver<bool>,
}

/// Puts `record` and keeps it until the announcement goes; tries again while the store cannot be reached.
///
/// # Errors
/// The record cannot be written as JSON, which no record of this release is.
pub fn announce(
    runtime: &DistributedRuntime,
    record: &ReplicaRecord,
    tasks: &TaskGroup,
) -> Result<Announcement, RecordError> {
    let (key, json) = (record.key(), Bytes::from(record.to_json()?));
    let stop = CancellationToken::new();
    let (told, stands) = watch::channel(false);
    let (discovery, stopped) = (Arc::clone(runtime.discovery()), stop.clone());
    tasks.spawn_named("announcement", async move {
        let put = || put(&*discovery, &key, &json);
        let lease = retry_dependent("announcing this router", RetryTimes::default(), &stopped, put).await;
        told.send_replace(true);
        stopped.cancelled().await;
        if let Some(lease) = lease
            && let Err(error) = lease.revoke().await
        {
            tracing::warn!(%error, "this router's record stays until its lease ends");
        }
    });
    Ok(Announcement { stop, stands })
}

async fn put(discovery: &dyn Discovery, key: &str, json: &Bytes) -> Result<Lease, DiscoveryError> {
    let lease = discovery.grant(TTL).await?;
    discovery.put(key, json.clone(), Some(&lease)).await?;
    Ok(lease)
}

impl Announcement {
    /// Waits until the record stands for the first time.
    pub async fn announced(&self) {
        drop(self.stands.clone().wait_for(|stands| *stands).await);
    }

    /// Takes the record back and waits until it is gone, or the store has had its time.
    pub async fn end(self) {
        self.stop.cancel();
        let mut stands = self.stands.clone();
        let gone = async { while stands.changed().await.is_ok() {} };
        drop(tokio::time::timeout(END_DEADLINE, gone).await);
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
