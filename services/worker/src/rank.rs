//! One data-parallel rank: a simulated engine on tokio time, with its KV log. Requests enter as [`RankRequest`]s and
//! leave by drop; the driver task moves time on and hands out what happens. Knows nothing of HTTP; called by `answer`
//! (requests), `publication` (log, load) and `worker` (the driver task).

use crate::{clock::VirtualClock, error::ApiError, publication::PublicationCounts};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use switchtower_engine_sim::{
    Engine, EngineEvent, EngineLoad, EngineParameters, ParameterError, RequestSpec,
};
use switchtower_ids::{Rank as RankNumber, SequenceHash};
use switchtower_kv::{
    event::{SequencedEvent, Snapshot},
    publisher::{Publisher, PublisherLimits},
};
use switchtower_selection::wire::RankLog;
use tokio::sync::{Notify, mpsc};

/// What a request hears from its engine. The channel closes after the last token, or early when the rank stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The first token; so many prompt tokens were found in the cache.
    First { cached_tokens: u32 },
    /// Another token.
    Token,
}

/// One rank. Cheap to share; the lock is held for the length of a call into the engine, never across an await.
#[derive(Debug)]
pub(crate) struct Rank {
    number: RankNumber,
    clock: VirtualClock,
    state: Mutex<State>,
    /// Something was submitted: the driver's idea of the next event is old.
    submitted: Notify,
    /// The log has grown.
    logged: Notify,
    published: AtomicU64,
    publication: Mutex<PublicationCounts>,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    log: Publisher,
    listeners: HashMap<u64, mpsc::Sender<Progress>>,
    next_id: u64,
    /// Reused between calls.
    events: Vec<EngineEvent>,
    stopped: bool,
}

impl Rank {
    /// An idle rank.
    ///
    /// # Errors
    /// Engine parameters that are wrong.
    pub(crate) fn new(
        number: RankNumber,
        parameters: EngineParameters,
        speed: f64,
        kept_events: usize,
    ) -> Result<Self, ParameterError> {
        let limits = PublisherLimits { ring_events: kept_events, ..PublisherLimits::default() };
        let state = State {
            engine: Engine::new(parameters)?,
            log: Publisher::new(limits),
            listeners: HashMap::new(),
            next_id: 0,
            events: Vec::new(),
            stopped: false,
        };
        Ok(Self {
            number,
            clock: VirtualClock::start(speed),
            state: Mutex::new(state),
            submitted: Notify::new(),
            logged: Notify::new(),
            published: AtomicU64::new(0),
            publication: Mutex::default(),
        })
    }

    /// Which of the worker's ranks it is.
    pub(crate) fn number(&self) -> RankNumber {
        self.number
    }

    /// Gives the engine a request; `spec.id` is chosen here. It lives as long as the answer.
    ///
    /// # Errors
    /// The engine refuses it, or the rank has stopped.
    pub(crate) fn submit(self: &Arc<Self>, mut spec: RequestSpec) -> Result<RankRequest, ApiError> {
        let mut state = self.state.lock();
        if state.stopped {
            return Err(ApiError::Stopped);
        }
        state.next_id += 1;
        spec.id = state.next_id;
        let id = spec.id;
        // Room for every token it will ever produce: the driver never waits for a slow reader, and nothing is lost.
        let (sender, progress) = mpsc::channel(spec.output_tokens.max(1) as usize);
        state.engine.submit(self.clock.now_us(), spec)?;
        state.listeners.insert(id, sender);
        drop(state);
        self.submitted.notify_one();
        Ok(RankRequest { rank: Arc::clone(self), id, progress })
    }

    /// Moves the engine's time on, as long as it is polled. When it is dropped the rank stops: every request's channel
    /// closes.
    pub(crate) async fn drive(self: Arc<Self>) {
        let _stop = StopOnDrop(&self);
        loop {
            let due = self.advance();
            let event = async {
                match due {
                    Some(at_us) => tokio::time::sleep_until(self.clock.real(at_us)).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = event => {}
                () = self.submitted.notified() => {}
            }
        }
    }

    /// Brings the engine up to now and hands out what happened; when something happens next.
    fn advance(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let State { engine, log, listeners, events, .. } = &mut *state;
        engine.advance(self.clock.now_us(), events);
        let logged_before = log.last_seq();
        for event in events.drain(..) {
            match event {
                EngineEvent::FirstToken { id, cached_tokens } => {
                    tell(listeners, id, Progress::First { cached_tokens });
                }
                EngineEvent::Token { id, .. } => tell(listeners, id, Progress::Token),
                EngineEvent::Finished { id } => drop(listeners.remove(&id)),
                EngineEvent::Kv(change) => {
                    if let Err(refused) = log.observe(&change, &mut Vec::new()) {
                        // The engine keeps the publisher's rules; if not, this rank's log lacks these blocks.
                        tracing::error!(error = %refused, "a cache change is not published");
                    }
                }
            }
        }
        if log.last_seq() > logged_before {
            self.logged.notify_one();
        }
        engine.next_event_at()
    }

    fn cancel(&self, id: u64) {
        let mut state = self.state.lock();
        state.listeners.remove(&id);
        state.engine.cancel(id);
    }

    /// The engine's load now.
    pub(crate) fn load(&self) -> EngineLoad {
        self.state.lock().engine.load()
    }

    /// The last event of the log that has gone to the bus, whether it arrived or not; 0 before the first.
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// What of the log has gone to the bus.
    pub(crate) fn publication(&self) -> PublicationCounts {
        *self.publication.lock()
    }

    /// The log has gone to the bus up to event `seq`, with these counts more.
    pub(crate) fn set_published(&self, seq: u64, counts: PublicationCounts) {
        *self.publication.lock() += counts;
        self.published.store(seq, Ordering::Release);
    }

    /// Whether the driver is gone.
    pub(crate) fn has_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Empties the engine's cache; false while requests run.
    pub(crate) fn clear_cache(&self) -> bool {
        let mut state = self.state.lock();
        let State { engine, events, .. } = &mut *state;
        let cleared = engine.clear_cache(events);
        drop(state);
        // The driver takes the event into the log.
        self.submitted.notify_one();
        cleared
    }

    /// Every block in the engine's cache.
    pub(crate) fn cached_blocks(&self) -> Vec<SequenceHash> {
        self.state.lock().engine.cached_blocks().map(|(hash, _)| hash).collect()
    }

    /// Waits until the log has grown since the last call.
    pub(crate) async fn log_grown(&self) {
        self.logged.notified().await;
    }
}

/// The engine waits for no answer: the lock is held while events are copied, not while they are written or sent.
impl RankLog for Rank {
    fn last(&self) -> u64 {
        self.state.lock().log.last_seq()
    }

    fn events_from(&self, from: u64, most: usize) -> Option<Vec<SequencedEvent>> {
        self.state.lock().log.events_from(from, most)
    }

    fn snapshot(&self) -> Snapshot {
        self.state.lock().log.snapshot()
    }
}

/// Only requests that still have a listener hear; the channel has room for all of their tokens.
fn tell(listeners: &HashMap<u64, mpsc::Sender<Progress>>, id: u64, progress: Progress) {
    if let Some(listener) = listeners.get(&id) {
        // It fails only when the reader is gone, and then its drop cancels the request.
        let _ = listener.try_send(progress);
    }
}

struct StopOnDrop<'a>(&'a Rank);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.stopped = true;
        state.listeners.clear();
    }
}

/// A request inside an engine. Dropping it, at any moment, takes it out at once and frees its blocks.
#[derive(Debug)]
pub(crate) struct RankRequest {
    rank: Arc<Rank>,
    id: u64,
    progress: mpsc::Receiver<Progress>,
}

impl RankRequest {
    /// The next token; `None` after the last one, or when the rank has stopped.
    pub(crate) async fn next(&mut self) -> Option<Progress> {
        self.progress.recv().await
    }
}

impl Drop for RankRequest {
    fn drop(&mut self) {
        self.rank.cancel(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank() -> Arc<Rank> {
        Arc::new(Rank::new(RankNumber(0), EngineParameters::default(), 10.0, 100).unwrap())
    }

    fn spec(output_tokens: u32) -> RequestSpec {
        RequestSpec { id: 0, prompt_tokens: 100, output_tokens, blocks: (1..7).map(SequenceHash).collect() }
    }

    async fn read(mut request: RankRequest) -> Vec<Progress> {
        let mut all = Vec::new();
        while let Some(progress) = request.next().await {
            all.push(progress);
        }
        all
    }

    #[tokio::test]
    async fn tokens_take_their_time_and_the_second_request_finds_the_cache() {
        let rank = rank();
        let ask = async {
            let first = read(rank.submit(spec(5)).unwrap()).await;
            let second = read(rank.submit(spec(2)).unwrap()).await;
            (first, second)
        };
        let (first, second) = tokio::select! {
            both = ask => both,
            () = Arc::clone(&rank).drive() => unreachable!("the driver never ends"),
        };
        assert_eq!((first.len(), first[0]), (5, Progress::First { cached_tokens: 0 }));
        assert_eq!(second, [Progress::First { cached_tokens: 96 }, Progress::Token]);
        assert!(rank.clock.now_us() >= 7 * 6_000, "7 steps of at least 6 ms of virtual time");
    }

    #[tokio::test]
    async fn dropping_a_request_frees_its_blocks_at_once() {
        let rank = rank();
        let waiting = async {
            let mut request = rank.submit(spec(100_000)).unwrap();
            request.next().await.unwrap();
            assert!(rank.load().running == 1 && rank.load().blocks_used >= 7);
            drop(request);
            assert_eq!((rank.load().running, rank.load().waiting, rank.load().blocks_used), (0, 0, 0));
        };
        tokio::select! {
            () = waiting => {}
            () = Arc::clone(&rank).drive() => unreachable!("the driver never ends"),
        }
    }

    #[tokio::test]
    async fn a_rank_that_stops_closes_every_request_and_takes_no_more() {
        let rank = rank();
        let request = rank.submit(spec(100_000)).unwrap();
        let driver = tokio::time::timeout(std::time::Duration::from_millis(1), Arc::clone(&rank).drive());
        assert!(driver.await.is_err());
        assert!(read(request).await.len() < 100_000);
        assert!(matches!(rank.submit(spec(10)), Err(ApiError::Stopped)));
    }
}
