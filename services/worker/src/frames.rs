//! The bytes of an answer: OpenAI's JSON, whole or as server-sent events. Pure; called by `answer`.

use crate::{answer::Piece, prepare::Shape};
use bytes::Bytes;
use serde::Serialize;
use switchtower_models::openai::response::{
    Answer, AssistantMessage, ChatChoice, ChunkChoice, Delta, FinishReason, ObjectType, TextChoice, Usage,
};

/// Writes one answer's JSON; knows what all of its events share.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    pub(crate) shape: Shape,
    /// The answer's name.
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// The model's public name.
    pub(crate) model: String,
}

impl Frames {
    /// A whole answer: each choice's text and end.
    pub(crate) fn whole(&self, texts: Vec<(String, Option<FinishReason>)>, usage: Usage) -> Bytes {
        let texts = (0..).zip(texts);
        match self.shape {
            Shape::Chat => {
                let choice = |(index, (text, finish_reason))| {
                    let message = AssistantMessage {
                        role: "assistant".into(),
                        content: Some(text),
                        ..AssistantMessage::default()
                    };
                    ChatChoice { index, message, finish_reason, ..ChatChoice::default() }
                };
                json(&self.answer(ObjectType::ChatCompletion, texts.map(choice).collect(), Some(usage)))
            }
            Shape::Text => {
                let choice = |(index, (text, finish_reason))| TextChoice {
                    index,
                    text,
                    finish_reason,
                    logprobs: None,
                };
                json(&self.answer(ObjectType::TextCompletion, texts.map(choice).collect(), Some(usage)))
            }
        }
    }

    /// One event: a piece of one choice.
    pub(crate) fn piece(&self, piece: Piece, usage: Option<Usage>) -> Bytes {
        let Piece { index, first, text, finish: finish_reason, .. } = piece;
        match self.shape {
            Shape::Chat => {
                let role = first.then(|| "assistant".to_owned());
                let delta = Delta { role, content: Some(text), ..Delta::default() };
                let choice = ChunkChoice { index, delta, finish_reason, ..ChunkChoice::default() };
                event(&self.answer(ObjectType::ChatCompletionChunk, vec![choice], usage))
            }
            Shape::Text => {
                let choice = TextChoice { index, text, finish_reason, logprobs: None };
                event(&self.answer(ObjectType::TextCompletion, vec![choice], usage))
            }
        }
    }

    /// The event that carries the usage and no choice.
    pub(crate) fn usage(&self, usage: Usage) -> Bytes {
        match self.shape {
            Shape::Chat => {
                event(&self.answer::<ChunkChoice>(ObjectType::ChatCompletionChunk, vec![], Some(usage)))
            }
            Shape::Text => event(&self.answer::<TextChoice>(ObjectType::TextCompletion, vec![], Some(usage))),
        }
    }

    /// The last event.
    pub(crate) fn done() -> Bytes {
        Bytes::from_static(b"data: [DONE]\n\n")
    }

    fn answer<C>(&self, object: ObjectType, choices: Vec<C>, usage: Option<Usage>) -> Answer<C> {
        Answer {
            id: self.id.clone(),
            object,
            created: self.created,
            model: self.model.clone(),
            choices,
            usage,
        }
    }
}

/// These shapes always serialize: string keys and plain values only.
fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

fn event(value: &impl Serialize) -> Bytes {
    [b"data: ", json(value).as_ref(), b"\n\n"].concat().into()
}
