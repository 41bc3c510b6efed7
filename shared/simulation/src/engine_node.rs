//! One engine with the publisher of its KV log: what a worker's rank is, without its server. Called by `simulation`.

use crate::trace::{BLOCK_TOKENS, TraceRequest};
use switchtower_engine_sim::{
    Engine, EngineEvent, EngineLoad, EngineParameters, ParameterError, RequestSpec,
};
use switchtower_ids::Row;
use switchtower_kv::{
    event::{EventBatch, SequencedEvent},
    publisher::{Publisher, PublisherLimits},
};

use crate::fleet::FIRST_LIFE;

/// What an engine tells the router of a request, over the stream of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It did not take the request.
    Refused,
    /// The first token, and what the prefill found in the cache.
    FirstToken { cached_tokens: u32 },
    /// Behind the prompt's full blocks are so many by now.
    OutputGrew { blocks: u32 },
    /// The last token.
    Finished,
}

/// What came of a step.
#[derive(Debug)]
pub(crate) enum News {
    /// Progress of a request, by its number in the trace.
    Stream(usize, Progress),
    /// More of the rank's log.
    Log(EventBatch),
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct EngineNode {
    engine: Engine,
    publisher: Publisher,
    row: Row,
    /// The engine's next event, as it stands in the agenda.
    armed_us: Option<u64>,
    /// Prompt tokens that were computed, of requests whose first token is out.
    uncached_tokens: u64,
    /// Reused between calls.
    events: Vec<EngineEvent>,
}

impl EngineNode {
    pub(crate) fn new(row: Row, parameters: EngineParameters) -> Result<Self, ParameterError> {
        Ok(Self {
            engine: Engine::new(parameters)?,
            publisher: Publisher::new(PublisherLimits::default()),
            row,
            armed_us: None,
            uncached_tokens: 0,
            events: Vec::new(),
        })
    }

    /// Takes a request, or tells that it does not.
    pub(crate) fn submit(&mut self, now_us: u64, number: usize, request: &TraceRequest) -> Option<News> {
        let spec = RequestSpec {
            id: number as u64,
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            // A trace does not tell the blocks of outputs: they take memory and are not found again.
            blocks: request.blocks.to_vec(),
        };
        let refused = self.engine.submit(now_us, spec).is_err();
        refused.then_some(News::Stream(number, Progress::Refused))
    }

    /// When it has to be advanced next, if that is not in the agenda yet.
    pub(crate) fn arm(&mut self) -> Option<u64> {
        let due_us = self.engine.next_event_at();
        if due_us == self.armed_us {
            return None;
        }
        self.armed_us = due_us;
        due_us
    }

    /// Lets time pass and appends what is heard outside to `news`.
    pub(crate) fn advance(&mut self, now_us: u64, requests: &[TraceRequest], news: &mut Vec<News>) {
        self.armed_us = None;
        let mut events = std::mem::take(&mut self.events);
        self.engine.advance(now_us, &mut events);
        let mut log = Vec::new();
        for event in events.drain(..) {
            self.hear(event, requests, news, &mut log);
        }
        self.events = events;
        if !log.is_empty() {
            news.push(News::Log(EventBatch { row: self.row, incarnation: FIRST_LIFE, events: log }));
        }
    }

    fn hear(
        &mut self,
        event: EngineEvent,
        requests: &[TraceRequest],
        news: &mut Vec<News>,
        log: &mut Vec<SequencedEvent>,
    ) {
        let prompt_tokens = |id: u64| requests.get(id as usize).map_or(0, |request| request.prompt_tokens);
        match event {
            EngineEvent::FirstToken { id, cached_tokens } => {
                let prompt_tokens = prompt_tokens(id);
                self.uncached_tokens += u64::from(prompt_tokens - cached_tokens);
                news.push(News::Stream(id as usize, Progress::FirstToken { cached_tokens }));
                news.push(News::Stream(id as usize, Progress::OutputGrew { blocks: 1 }));
            }
            EngineEvent::Token { id, index } => {
                // The output begins in the prompt's partial block.
                let before = prompt_tokens(id) % BLOCK_TOKENS + index;
                if before.is_multiple_of(BLOCK_TOKENS) {
                    let blocks = before / BLOCK_TOKENS + 1;
                    news.push(News::Stream(id as usize, Progress::OutputGrew { blocks }));
                }
            }
            EngineEvent::Finished { id } => news.push(News::Stream(id as usize, Progress::Finished)),
            EngineEvent::Kv(change) => {
                let published = self.publisher.observe(&change, log);
                debug_assert_eq!(published, Ok(()), "an engine keeps the publisher's rules");
            }
        }
    }

    pub(crate) fn load(&self) -> EngineLoad {
        self.engine.load()
    }

    pub(crate) fn uncached_tokens(&self) -> u64 {
        self.uncached_tokens
    }
}
