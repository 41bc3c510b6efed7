//! Answers, in OpenAI's shapes: what the simulated worker writes and what the frontend reads usage from. Unknown
//! members are ignored on reading and absent ones are defaults, so that a worker with odd answers breaks nothing (B95).

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Tokens that a request cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of all the answers.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// How much of the prompt was cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptTokensDetails>,
}

/// More about the tokens of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptTokensDetails {
    /// Tokens that were in the KV cache.
    pub cached_tokens: u64,
}

impl Usage {
    /// The usage of a prompt and its answers, `cached` of the prompt's tokens from the cache.
    #[must_use]
    pub fn new(prompt: u64, completion: u64, cached: u64) -> Self {
        Self {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt.saturating_add(completion),
            prompt_tokens_details: Some(PromptTokensDetails { cached_tokens: cached }),
        }
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model's own end, or a stop string.
    Stop,
    /// `max_tokens` or the context's end.
    Length,
    /// The model calls tools.
    ToolCalls,
    /// The content was filtered.
    ContentFilter,
}

/// The object types, one text each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectType {
    /// A whole chat answer.
    #[serde(rename = "chat.completion")]
    ChatCompletion,
    /// One event of a streamed chat answer.
    #[serde(rename = "chat.completion.chunk")]
    ChatCompletionChunk,
    /// A completion, whole or one event of a streamed one.
    #[serde(rename = "text_completion")]
    TextCompletion,
}

/// The answer to a request: `C` is [`ChatChoice`], [`ChunkChoice`] or [`TextChoice`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer<C> {
    /// The request's name, the same in all events of a stream.
    pub id: String,
    /// Which of the shapes.
    pub object: ObjectType,
    /// Seconds since 1970.
    pub created: u64,
    /// The model's public name.
    pub model: String,
    /// One per `n`; empty in the event that carries the usage.
    #[serde(default = "Vec::new")]
    pub choices: Vec<C>,
    /// Always in whole answers; in a stream only in the last event, when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// `chat.completion`.
pub type ChatCompletion = Answer<ChatChoice>;
/// `chat.completion.chunk`.
pub type ChatCompletionChunk = Answer<ChunkChoice>;
/// `text_completion`.
pub type TextCompletion = Answer<TextChoice>;

/// One answer of a chat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatChoice {
    /// Position, from 0.
    pub index: u32,
    /// What the assistant says.
    pub message: AssistantMessage,
    /// Log probabilities, as the engine gives them.
    pub logprobs: Option<Value>,
    /// Why it ended.
    pub finish_reason: Option<FinishReason>,
}

/// What the assistant says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AssistantMessage {
    /// `assistant`.
    pub role: String,
    /// The text; null when only tools are called.
    pub content: Option<String>,
    /// Calls of tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
}

/// One piece of a streamed chat answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChunkChoice {
    /// Position of the answer it belongs to, from 0.
    pub index: u32,
    /// What is new.
    pub delta: Delta,
    /// Log probabilities, as the engine gives them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Value>,
    /// Set in the answer's last piece.
    pub finish_reason: Option<FinishReason>,
}

/// What is new in a streamed chat answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delta {
    /// `assistant`, in the first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// More text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Pieces of tool calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
}

/// One completion, or a piece of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextChoice {
    /// Position, from 0.
    pub index: u32,
    /// The text, or what is new of it.
    pub text: String,
    /// Log probabilities, as the engine gives them.
    pub logprobs: Option<Value>,
    /// Why it ended; null before that.
    pub finish_reason: Option<FinishReason>,
}
