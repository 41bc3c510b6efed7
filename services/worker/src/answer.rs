//! From the engine's progress to the answer: runs that yield pieces, and the bodies made of them, whole or streamed.
//! Everything here is dropped with the response: a client that goes away takes its requests out of the engine.

use crate::{
    error::ApiError,
    frames::Frames,
    gate::Inside,
    prepare::Script,
    rank::{Progress, RankRequest},
};
use bytes::Bytes;
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream, SelectAll},
};
use switchtower_models::openai::{
    StreamOptions,
    response::{FinishReason, Usage},
};

/// What one token adds to one of the answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Which answer.
    pub(crate) index: u32,
    /// Its first piece.
    pub(crate) first: bool,
    /// New text; may be empty.
    pub(crate) text: String,
    /// Set in its last piece.
    pub(crate) finish: Option<FinishReason>,
    /// Prompt tokens found in the cache, where they are to be counted.
    cached_tokens: u32,
}

/// The engine stopped before an answer was complete, or was told to act so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine stopped in the middle of an answer")]
pub(crate) struct Broken;

/// One answer being produced.
#[derive(Debug)]
struct Run {
    index: u32,
    script: Script,
    request: RankRequest,
    produced: usize,
}

impl Run {
    /// The next piece; `None` after the last.
    async fn next(&mut self) -> Option<Result<Piece, Broken>> {
        let text = self.script.reply.texts.get(self.produced)?;
        let Some(progress) = self.request.next().await else {
            // Ask no more: the stream ends after the error.
            self.produced = usize::MAX;
            return Some(Err(Broken));
        };
        let first = self.produced == 0;
        self.produced += 1;
        let last = self.produced == self.script.reply.texts.len();
        let end = if self.script.reply.ended { FinishReason::Stop } else { FinishReason::Length };
        let cached_tokens = match progress {
            Progress::First { cached_tokens } if self.script.first_of_prompt => cached_tokens,
            _ => 0,
        };
        let text = if first { format!("{}{text}", self.script.echo) } else { text.clone() };
        Some(Ok(Piece { index: self.index, first, text, finish: last.then_some(end), cached_tokens }))
    }

    fn pieces(self) -> impl Stream<Item = Result<Piece, Broken>> {
        stream::unfold(self, async |mut run| Some((run.next().await?, run)))
    }
}

/// All the answers of one request, their pieces in the order in which they come.
pub(crate) struct Runs {
    pieces: SelectAll<BoxStream<'static, Result<Piece, Broken>>>,
    answers: usize,
    prompt_tokens: u64,
    completion_tokens: u64,
    cached_tokens: u64,
    /// Told to break after this many tokens.
    cut_after_tokens: Option<u64>,
    _inside: Inside,
}

impl Runs {
    /// The answers that `requests` produce. The request counts as inside until this is dropped.
    pub(crate) fn new(
        requests: Vec<(Script, RankRequest)>,
        prompt_tokens: u64,
        cut_after_tokens: Option<u32>,
        inside: Inside,
    ) -> Self {
        let answers = requests.len();
        let run = |(index, (script, request))| Run { index, script, request, produced: 0 }.pieces().boxed();
        let pieces = stream::select_all((0..).zip(requests).map(run));
        let cut_after_tokens = cut_after_tokens.map(u64::from);
        Self {
            pieces,
            answers,
            prompt_tokens,
            completion_tokens: 0,
            cached_tokens: 0,
            cut_after_tokens,
            _inside: inside,
        }
    }

    async fn next(&mut self) -> Option<Result<Piece, Broken>> {
        if self.cut_after_tokens.is_some_and(|tokens| self.completion_tokens >= tokens) {
            return Some(Err(Broken));
        }
        let piece = self.pieces.next().await?;
        if let Ok(piece) = &piece {
            self.completion_tokens += 1;
            self.cached_tokens += u64::from(piece.cached_tokens);
        }
        Some(piece)
    }

    fn usage(&self) -> Usage {
        Usage::new(self.prompt_tokens, self.completion_tokens, self.cached_tokens)
    }

    /// Waits for all the answers; the body.
    ///
    /// # Errors
    /// The engine stopped. `Ok(None)`: the connection shall break instead of an answer.
    pub(crate) async fn whole(mut self, frames: &Frames) -> Result<Option<Bytes>, ApiError> {
        let mut texts = vec![(String::new(), None); self.answers];
        while let Some(piece) = self.next().await {
            match piece {
                Ok(piece) => {
                    if let Some((text, finish)) = texts.get_mut(piece.index as usize) {
                        text.push_str(&piece.text);
                        *finish = piece.finish;
                    }
                }
                Err(Broken) if self.cut_after_tokens.is_some() => return Ok(None),
                Err(Broken) => return Err(ApiError::Stopped),
            }
        }
        Ok(Some(frames.whole(texts, self.usage())))
    }

    /// The answers as server-sent events. An error in the stream breaks the connection, as an engine's crash would.
    pub(crate) fn streamed(
        self,
        frames: Frames,
        options: StreamOptions,
    ) -> impl Stream<Item = Result<Bytes, Broken>> + Send + 'static {
        let events = Events { runs: self, frames, options, stage: Stage::Pieces };
        stream::unfold(events, async |mut events| Some((events.next().await?, events)))
    }
}

/// What comes next in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Pieces,
    Done,
    Over,
}

struct Events {
    runs: Runs,
    frames: Frames,
    options: StreamOptions,
    stage: Stage,
}

impl Events {
    async fn next(&mut self) -> Option<Result<Bytes, Broken>> {
        match self.stage {
            Stage::Pieces => Some(self.next_piece().await),
            Stage::Done => {
                self.stage = Stage::Over;
                Some(Ok(Frames::done()))
            }
            Stage::Over => None,
        }
    }

    /// The next piece, or what follows the last one.
    async fn next_piece(&mut self) -> Result<Bytes, Broken> {
        match self.runs.next().await {
            Some(Ok(piece)) => {
                let usage = self.options.continuous_usage_stats.then(|| self.runs.usage());
                Ok(self.frames.piece(piece, usage))
            }
            Some(Err(broken)) => {
                self.stage = Stage::Over;
                // The server drops what it has buffered when a body fails. A pause lets it send that first: the client
                // has seen every token up to the break, as with a real crash.
                tokio::task::yield_now().await;
                Err(broken)
            }
            None if self.options.include_usage => {
                self.stage = Stage::Done;
                Ok(self.frames.usage(self.runs.usage()))
            }
            None => {
                self.stage = Stage::Over;
                Ok(Frames::done())
            }
        }
    }
}
