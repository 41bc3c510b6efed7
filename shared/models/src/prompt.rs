//! From a checked request to the token ids that the engine will see: render, encode, check the length. The frontend
//! hashes the first prompt and limits by all of them.

use crate::{
    Model, RenderInput, TemplateError, ToolArguments,
    openai::{ChatRequest, CompletionRequest, Message, Prompt, RequestError, with_parsed_arguments},
};
use serde_json::{Map, Value};

/// Either request.
#[derive(Clone, Copy, Debug)]
pub enum AnyRequest<'a> {
    /// `POST /v1/chat/completions`.
    Chat(&'a ChatRequest),
    /// `POST /v1/completions`.
    Completion(&'a CompletionRequest),
}

impl<'a> From<&'a ChatRequest> for AnyRequest<'a> {
    fn from(request: &'a ChatRequest) -> Self {
        Self::Chat(request)
    }
}

impl<'a> From<&'a CompletionRequest> for AnyRequest<'a> {
    fn from(request: &'a CompletionRequest) -> Self {
        Self::Completion(request)
    }
}

impl AnyRequest<'_> {
    fn output_tokens_max(&self) -> Option<u32> {
        match self {
            Self::Chat(request) => request.output_tokens_max(),
            Self::Completion(request) => request.output_tokens_max(),
        }
    }
}

/// Token ids of every prompt: one for a chat, one or more for a completion, none of them empty. An empty text is the
/// model's BOS token alone, and an error where it has none.
///
/// CPU-bound: about 1 µs per token. On an async runtime, call it on a blocking thread.
///
/// # Errors
/// [`RequestError`], status 400: the template refuses or fails, a token id is not the model's, or prompt and
/// `max_tokens` do not fit the context (code `context_length_exceeded`; without `max_tokens` one token of output must).
pub fn prompt_inputs<'a>(
    model: &Model,
    request: impl Into<AnyRequest<'a>>,
) -> Result<Vec<Vec<u32>>, RequestError> {
    let request = request.into();
    let length = LengthCheck { context: model.card().context_length, output: request.output_tokens_max() };
    match request {
        AnyRequest::Chat(chat) => {
            let text = render_chat(model, chat)?;
            let add_special_tokens =
                chat.extra.get("add_special_tokens").and_then(Value::as_bool).unwrap_or(false);
            Ok(vec![encode(model, &text, add_special_tokens, &length.at("messages"))?])
        }
        AnyRequest::Completion(completion) => completion_tokens(model, completion, &length),
    }
}

/// The text that a chat becomes, before tokenization.
///
/// # Errors
/// [`RequestError`], status 400: the model has no template, or the template refuses or fails.
pub fn render_chat(model: &Model, request: &ChatRequest) -> Result<String, RequestError> {
    let template = model.chat_template(!request.tools.is_empty()).map_err(|error| template_error(&error))?;
    let parsed = model.card().tool_arguments == ToolArguments::Parsed;
    let messages = request.messages.iter().map(|message| {
        let object = if parsed { with_parsed_arguments(message) } else { message.as_object().clone() };
        if template.accepts_parts() { Ok(object) } else { joined_parts(message, object) }
    });
    let tools = Some(request.tools.clone()).filter(|tools| !tools.is_empty());
    let input = RenderInput {
        messages: messages.collect::<Result<_, _>>()?,
        tools,
        add_generation_prompt: request.add_generation_prompt.unwrap_or(!request.continue_final_message),
        special_tokens: special_tokens(model),
        kwargs: template_kwargs(request),
    };
    let text = template.render(&input).map_err(|error| template_error(&error))?;
    if request.continue_final_message { cut_after_final(text, input.messages.last()) } else { Ok(text) }
}

fn special_tokens(model: &Model) -> std::collections::BTreeMap<String, String> {
    let card = model.card();
    let mut tokens = card.special_tokens.clone();
    let named = [("bos_token", &card.bos_token), ("eos_token", &card.eos_token)];
    tokens.extend(named.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text.clone()?))));
    tokens
}

/// The request's kwargs, and `documents`, which is a field of its own in the engines' API.
fn template_kwargs(request: &ChatRequest) -> Map<String, Value> {
    let mut kwargs = request.chat_template_kwargs.clone();
    for name in ["documents", "reasoning_effort"] {
        if let Some(value) = request.extra.get(name).filter(|value| !value.is_null()) {
            kwargs.entry(name).or_insert_with(|| value.clone());
        }
    }
    kwargs
}

/// For templates that know text only: the text parts, one per line, as vLLM joins them.
fn joined_parts(
    message: &Message,
    mut object: Map<String, Value>,
) -> Result<Map<String, Value>, RequestError> {
    let Some(parts) = message.parts() else {
        return Ok(object);
    };
    let text = |part: &Value| Some(part.get("text").or(part.get("refusal"))?.as_str()?.to_owned());
    let texts: Option<Vec<String>> = parts.iter().map(text).collect();
    let texts = texts.ok_or_else(|| {
        let message =
            "holds parts other than text, which this model's chat template cannot take: send text only";
        RequestError::invalid("messages".to_owned(), "unsupported_content", message)
    })?;
    object.insert("content".to_owned(), Value::String(texts.join("\n")));
    Ok(object)
}

/// Cut the prompt behind the last message's own text, so that the model goes on with it.
fn cut_after_final(mut text: String, last: Option<&Map<String, Value>>) -> Result<String, RequestError> {
    let content = last.and_then(|message| message.get("content"));
    let parts = content.and_then(Value::as_array).and_then(|parts| parts.last()?.get("text")?.as_str());
    let said = content.and_then(Value::as_str).or(parts).unwrap_or_default();
    let trimmed = said.trim();
    let start = text.rfind(trimmed).filter(|_| !trimmed.is_empty()).ok_or_else(|| {
        let message = "the last message's text is not in the rendered prompt, so it cannot be continued";
        RequestError::wrong_value("continue_final_message", message)
    })?;
    // Some templates trim messages, others keep the space at the end.
    let kept = said.trim_start();
    let length = if text[start..].starts_with(kept) { kept.len() } else { trimmed.len() };
    text.truncate(start + length);
    Ok(text)
}

fn template_error(error: &TemplateError) -> RequestError {
    let code = match error {
        TemplateError::Missing { .. } => "no_chat_template",
        TemplateError::Raised { .. } => "conversation_refused",
        TemplateError::TooMuchWork { .. } | TemplateError::TooLong { .. } => "conversation_too_large",
        TemplateError::Compile { .. } | TemplateError::Failed { .. } => "chat_template_failed",
    };
    RequestError::invalid("messages".to_owned(), code, error.to_string())
}

fn completion_tokens(
    model: &Model,
    request: &CompletionRequest,
    length: &LengthCheck,
) -> Result<Vec<Vec<u32>>, RequestError> {
    let special = request.add_special_tokens.unwrap_or(true);
    let text = |text: &str, param: &str| encode(model, text, special, &length.at(param));
    let tokens = |ids: &[u32], param: &str| check_tokens(model, ids, &length.at(param));
    match &request.prompt {
        Prompt::Text(one) => Ok(vec![text(one, "prompt")?]),
        Prompt::Tokens(ids) => Ok(vec![tokens(ids, "prompt")?]),
        Prompt::Texts(texts) => each(texts, |one, param| text(one, param)),
        Prompt::TokenLists(lists) => each(lists, |ids, param| tokens(ids, param)),
    }
}

fn each<T>(
    prompts: &[T],
    convert: impl Fn(&T, &str) -> Result<Vec<u32>, RequestError>,
) -> Result<Vec<Vec<u32>>, RequestError> {
    prompts.iter().enumerate().map(|(index, prompt)| convert(prompt, &format!("prompt[{index}]"))).collect()
}

fn encode(model: &Model, text: &str, special: bool, length: &LengthAt<'_>) -> Result<Vec<u32>, RequestError> {
    let tokenizer = model.tokenizer();
    length.check_at_least(tokenizer.tokens_min(text.len()))?;
    let mut ids = tokenizer.encode(text, special).map_err(|error| {
        RequestError::invalid(length.param.to_owned(), "tokenization_failed", error.to_string())
    })?;
    if ids.is_empty() {
        let bos = model.card().bos_token.as_ref().and_then(|token| tokenizer.token_id(token));
        ids.push(bos.ok_or_else(|| {
            let message = "is empty and this model has no token to begin with: give some text";
            RequestError::invalid(length.param.to_owned(), "empty_prompt", message)
        })?);
    }
    length.check(ids.len())?;
    Ok(ids)
}

fn check_tokens(model: &Model, ids: &[u32], length: &LengthAt<'_>) -> Result<Vec<u32>, RequestError> {
    length.check(ids.len())?;
    let limit = model.tokenizer().vocab_size();
    match ids.iter().position(|id| *id >= limit) {
        None => Ok(ids.to_vec()),
        Some(index) => {
            let param = format!("{}[{index}]", length.param);
            let message = format!("must be a token id of this model, 0 to {}", limit - 1);
            Err(RequestError::invalid(param, "invalid_token_id", message))
        }
    }
}

/// Prompt and output must fit the context together.
struct LengthCheck {
    context: u32,
    output: Option<u32>,
}

impl LengthCheck {
    fn at<'a>(&'a self, param: &'a str) -> LengthAt<'a> {
        LengthAt { check: self, param }
    }
}

/// The check for one prompt.
struct LengthAt<'a> {
    check: &'a LengthCheck,
    param: &'a str,
}

impl LengthAt<'_> {
    fn check(&self, prompt: usize) -> Result<(), RequestError> {
        self.check_with("", prompt)
    }

    /// Before the tokens are counted.
    fn check_at_least(&self, prompt: usize) -> Result<(), RequestError> {
        self.check_with("at least ", prompt)
    }

    fn check_with(&self, qualifier: &str, prompt: usize) -> Result<(), RequestError> {
        let LengthCheck { context, output } = *self.check;
        let needed = prompt as u64 + u64::from(output.unwrap_or(1));
        if needed <= u64::from(context) {
            return Ok(());
        }
        let message = match output {
            Some(output) => format!(
                "the model's context is {context} tokens, but the request needs {qualifier}{needed}: \
                 {prompt} of prompt and {output} of output; shorten the prompt or lower the output limit"
            ),
            None => format!(
                "the model's context is {context} tokens, but the prompt has {qualifier}{prompt} and the \
                 answer needs at least 1; shorten the prompt"
            ),
        };
        Err(RequestError::invalid(self.param.to_owned(), "context_length_exceeded", message))
    }
}

#[cfg(test)]
mod tests;
