//! The records that the registry follows, from several watches, as one stream.
//!
//! Must not read them. Whoever polls it gets every event of each watch in that watch's order; between watches there is none.

use crate::records::{CLAIMS, DRAINS, WORKERS};
use switchtower_cluster::{Discovery, DiscoveryError, Watch, WatchEvent};

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Workers say what they are.
    Workers,
    /// Operators drain workers.
    Drains,
    /// Workers claim ids that others have.
    Claims,
}

impl Source {
    pub(super) const ALL: [Self; 3] = [Self::Workers, Self::Drains, Self::Claims];

    pub(super) const fn prefix(self) -> &'static str {
        match self {
            Self::Workers => WORKERS,
            Self::Drains => DRAINS,
            Self::Claims => CLAIMS,
        }
    }
}

/// A change of one source's records.
#[derive(Clone, Debug)]
pub(crate) struct FeedEvent {
    pub(super) source: Source,
    pub(super) event: WatchEvent,
}

/// The watches.
pub(crate) struct RecordFeed {
    workers: Watch,
    drains: Watch,
    claims: Watch,
}

impl RecordFeed {
    /// Watches all sources.
    pub(crate) async fn watch(discovery: &dyn Discovery) -> Result<Self, DiscoveryError> {
        Ok(Self {
            workers: discovery.watch(Source::Workers.prefix()).await?,
            drains: discovery.watch(Source::Drains.prefix()).await?,
            claims: discovery.watch(Source::Claims.prefix()).await?,
        })
    }

    /// The next event; `None` once a watch is gone for good. Loses nothing when it is dropped.
    pub(super) async fn next(&mut self) -> Option<FeedEvent> {
        let (source, event) = tokio::select! {
            event = self.workers.next() => (Source::Workers, event),
            event = self.drains.next() => (Source::Drains, event),
            event = self.claims.next() => (Source::Claims, event),
        };
        event.map(|event| FeedEvent { source, event })
    }

    /// The next event if one is there now.
    pub(super) fn try_next(&mut self) -> Option<FeedEvent> {
        let Self { workers, drains, claims } = self;
        let watches = [(Source::Workers, workers), (Source::Drains, drains), (Source::Claims, claims)];
        watches.into_iter().find_map(|(source, watch)| Some(FeedEvent { source, event: watch.try_next()? }))
    }
}
