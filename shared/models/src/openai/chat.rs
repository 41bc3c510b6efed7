//! `POST /v1/chat/completions`: the request.

use super::{
    GenerationOptions, Message, RequestError,
    fields::Fields,
    message::parse_messages,
    strict_json::parse_object,
    tools::{parse_choice, parse_tools},
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;

/// Most alternatives per position that `top_logprobs` may ask for.
const TOP_LOGPROBS_MAX: u32 = 20;
/// Variables of a template that the request has fields for.
const RESERVED_KWARGS: [&str; 3] = ["messages", "tools", "chat_template"];

/// A checked chat request. Serializes to a body that means the same; `Debug` shows no text of it.
#[derive(Clone, PartialEq, Serialize)]
pub struct ChatRequest {
    /// The model's public name.
    pub model: String,
    /// The conversation, at least one message.
    pub messages: Vec<Message>,
    /// Tools offered to the model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
    /// Which tool the model shall call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
    /// Most output tokens, at least 1; wins over `max_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens: Option<u32>,
    /// Whether to answer with log probabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<bool>,
    /// Alternatives per position, 0 to 20; only with `logprobs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<u32>,
    /// Whether the prompt ends with the opening of the assistant's message; unset is true (a field of vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_generation_prompt: Option<bool>,
    /// Whether the model goes on with the last message instead of answering it (a field of vLLM).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continue_final_message: bool,
    /// More variables for the chat template.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub chat_template_kwargs: Map<String, Value>,
    /// What is shared with completions.
    #[serde(flatten)]
    pub options: GenerationOptions,
    /// Every field that is not known here, to be passed on.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ChatRequest {
    /// Most output tokens, where the request bounds them.
    #[must_use]
    pub fn output_tokens_max(&self) -> Option<u32> {
        self.max_completion_tokens.or(self.options.max_tokens)
    }

    fn check(&self) -> Result<(), RequestError> {
        if self.top_logprobs.is_some() && self.logprobs != Some(true) {
            return Err(RequestError::wrong_value(
                "top_logprobs",
                "needs `logprobs`: true; set that or leave this out",
            ));
        }
        if self.continue_final_message && self.add_generation_prompt == Some(true) {
            let message = "excludes `add_generation_prompt`: true; choose one";
            return Err(RequestError::wrong_value("continue_final_message", message));
        }
        match RESERVED_KWARGS.iter().find(|name| self.chat_template_kwargs.contains_key(**name)) {
            Some(name) => {
                let param = format!("chat_template_kwargs.{name}");
                Err(RequestError::wrong_value(&param, "cannot be given here: use the request's own field"))
            }
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ChatRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ChatRequest");
        debug
            .field("model", &self.model)
            .field("messages", &self.messages.len())
            .field("tools", &self.tools.len());
        debug.field("stream", &self.options.stream).finish_non_exhaustive()
    }
}

/// Parse and check a body.
///
/// # Errors
/// [`RequestError`], status 400, for the first thing wrong.
pub fn parse_chat(body: &[u8]) -> Result<ChatRequest, RequestError> {
    let mut fields = Fields::new(parse_object(body)?);
    let model = fields.model()?;
    let messages = parse_messages(fields.take("messages"))?;
    let tools = parse_tools(&mut fields)?;
    refuse_template(&fields)?;
    let request = ChatRequest {
        model,
        messages,
        tool_choice: parse_choice(&mut fields, &tools)?,
        tools,
        max_completion_tokens: fields.count("max_completion_tokens", 1, u32::MAX)?,
        logprobs: fields.boolean("logprobs")?,
        top_logprobs: fields.count("top_logprobs", 0, TOP_LOGPROBS_MAX)?,
        add_generation_prompt: fields.boolean("add_generation_prompt")?,
        continue_final_message: fields.boolean("continue_final_message")?.unwrap_or(false),
        chat_template_kwargs: fields.object("chat_template_kwargs")?.unwrap_or_default(),
        options: GenerationOptions::take(&mut fields)?,
        extra: fields.rest(),
    };
    request.check()?;
    Ok(request)
}

/// A template is a program; only the model's own is run.
fn refuse_template(fields: &Fields) -> Result<(), RequestError> {
    match fields.peek("chat_template") {
        None => Ok(()),
        Some(_) => {
            let message = "is not taken from requests: leave it out, the model's own is used";
            Err(RequestError::wrong_value("chat_template", message))
        }
    }
}
