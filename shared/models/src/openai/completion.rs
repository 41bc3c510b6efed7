//! `POST /v1/completions`: the request.

use super::{
    GenerationOptions, RequestError,
    fields::{Fields, integer, text},
    strict_json::parse_object,
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;

/// Most prompts of one request (OpenAI's limit).
pub const PROMPTS_MAX: usize = 2048;
/// Most alternatives per position that `logprobs` may ask for.
const LOGPROBS_MAX: u32 = 20;

/// One or more prompts, as text or as token ids. Never an empty list; token lists are never empty; text may be
/// (the prompt is then the model's BOS token alone).
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Prompt {
    /// One text.
    Text(String),
    /// One list of token ids.
    Tokens(Vec<u32>),
    /// Several texts.
    Texts(Vec<String>),
    /// Several lists of token ids.
    TokenLists(Vec<Vec<u32>>),
}

impl Prompt {
    /// Number of prompts.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Text(_) | Self::Tokens(_) => 1,
            Self::Texts(texts) => texts.len(),
            Self::TokenLists(lists) => lists.len(),
        }
    }
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prompt({} prompts)", self.count())
    }
}

/// A checked completion request. Serializes to a body that means the same; `Debug` shows no text of it.
#[derive(Clone, PartialEq, Serialize)]
pub struct CompletionRequest {
    /// The model's public name.
    pub model: String,
    /// What to complete.
    pub prompt: Prompt,
    /// Alternatives per position, 0 to 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<u32>,
    /// Whether the answer repeats the prompt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub echo: bool,
    /// Candidates of which `n` are returned; at least `n`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_of: Option<u32>,
    /// Text after the completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// Whether the tokenizer adds its special tokens to text prompts; unset is true (a field of vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_special_tokens: Option<bool>,
    /// What is shared with chat.
    #[serde(flatten)]
    pub options: GenerationOptions,
    /// Every field that is not known here, to be passed on.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl CompletionRequest {
    /// Most output tokens, where the request bounds them.
    #[must_use]
    pub fn output_tokens_max(&self) -> Option<u32> {
        self.options.max_tokens
    }
}

impl fmt::Debug for CompletionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("CompletionRequest");
        debug.field("model", &self.model).field("prompt", &self.prompt);
        debug.field("stream", &self.options.stream).finish_non_exhaustive()
    }
}

/// Parse and check a body.
///
/// # Errors
/// [`RequestError`], status 400, for the first thing wrong.
pub fn parse_completion(body: &[u8]) -> Result<CompletionRequest, RequestError> {
    let mut fields = Fields::new(parse_object(body)?);
    let request = CompletionRequest {
        model: fields.model()?,
        prompt: parse_prompt(fields.take("prompt"))?,
        logprobs: fields.count("logprobs", 0, LOGPROBS_MAX)?,
        echo: fields.boolean("echo")?.unwrap_or(false),
        best_of: fields.count("best_of", 1, super::CHOICES_MAX)?,
        suffix: fields.string("suffix")?,
        options: GenerationOptions::take(&mut fields)?,
        add_special_tokens: fields.boolean("add_special_tokens")?,
        extra: fields.rest(),
    };
    let choices = request.options.choices();
    match request.best_of {
        Some(best_of) if best_of < choices => Err(RequestError::wrong_value(
            "best_of",
            format!("must be at least `n` ({choices}); got {best_of}"),
        )),
        _ => Ok(request),
    }
}

fn parse_prompt(value: Option<Value>) -> Result<Prompt, RequestError> {
    const EXPECTED: &str = "a string, an array of strings, an array of token ids, or an array of those";
    let items = match value {
        None => return Err(RequestError::missing("prompt".to_owned(), EXPECTED)),
        Some(Value::String(text)) => return Ok(Prompt::Text(text)),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(RequestError::wrong_type("prompt", EXPECTED, &other)),
    };
    match items.first() {
        None => {
            Err(RequestError::wrong_value("prompt", "must not be an empty array: give at least one prompt"))
        }
        Some(Value::Number(_)) => token_ids("prompt", &items).map(Prompt::Tokens),
        Some(Value::String(_)) => {
            several(&items, |path, item| Ok(text(path, item)?.to_owned())).map(Prompt::Texts)
        }
        Some(Value::Array(_)) => several(&items, token_list).map(Prompt::TokenLists),
        Some(other) => {
            Err(RequestError::wrong_type("prompt[0]", "a string, a token id or an array of token ids", other))
        }
    }
}

fn several<T>(
    items: &[Value],
    parse: impl Fn(&str, &Value) -> Result<T, RequestError>,
) -> Result<Vec<T>, RequestError> {
    if items.len() > PROMPTS_MAX {
        let message = format!("must hold at most {PROMPTS_MAX} prompts; got {}", items.len());
        return Err(RequestError::wrong_value("prompt", message));
    }
    items.iter().enumerate().map(|(index, item)| parse(&format!("prompt[{index}]"), item)).collect()
}

fn token_list(path: &str, value: &Value) -> Result<Vec<u32>, RequestError> {
    match value {
        Value::Array(items) if items.is_empty() => {
            Err(RequestError::wrong_value(path, "must not be an empty array: give at least one token id"))
        }
        Value::Array(items) => token_ids(path, items),
        other => Err(RequestError::wrong_type(path, "an array of token ids, like the first prompt", other)),
    }
}

fn token_ids(path: &str, items: &[Value]) -> Result<Vec<u32>, RequestError> {
    let id = |item: &Value| item.as_u64().and_then(|id| u32::try_from(id).ok());
    let checked = |(index, item): (usize, &Value)| match id(item) {
        Some(id) => Ok(id),
        // The path is written only where it is needed: prompts have many tokens.
        None => Err(integer(&format!("{path}[{index}]"), item, 0..=i64::from(u32::MAX))
            .err()
            .unwrap_or_else(|| RequestError::wrong_type(path, "an array of token ids", item))),
    };
    items.iter().enumerate().map(checked).collect()
}
