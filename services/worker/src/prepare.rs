//! From a request's body to what the engine needs: prompt tokens, the replies, their block hashes. CPU-bound and free of
//! IO; `api` runs it on a blocking thread.

use crate::{
    SimulatedWorkerConfig,
    error::ApiError,
    reply::{Reply, ReplyRequest},
};
use serde_json::{Map, Value};
use std::num::NonZeroU32;
use switchtower_engine_sim::RequestSpec;
use switchtower_kv::hash::HashSpace;
use switchtower_models::{
    Model, TokenizerError,
    openai::{GenerationOptions, Prompt, RequestError, StreamOptions, parse_chat, parse_completion},
    prompt_inputs,
};

/// Most answers that one request may ask for, over all of its prompts.
const ANSWERS_MAX: usize = 4_096;

/// Which endpoint was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Text,
}

/// A request, ready for the engine.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Set when the answer is streamed.
    pub(crate) stream: Option<StreamOptions>,
    pub(crate) prompt_tokens: u64,
    /// In the order of their indices: the `n` answers to the first prompt, then those to the second …
    pub(crate) answers: Vec<(RequestSpec, Script)>,
}

/// What one answer will say, once the engine has produced it.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) reply: Reply,
    /// What stands before the reply: the prompt, where the request wants it repeated.
    pub(crate) echo: String,
    /// The first answer to its prompt; the prompt's cached tokens are counted there, once.
    pub(crate) first_of_prompt: bool,
}

/// What both endpoints' requests come down to.
struct Parsed {
    prompts: Vec<Vec<u32>>,
    options: GenerationOptions,
    output_tokens_max: Option<u32>,
    /// What stands before the replies to each prompt; none where it is not asked for.
    echoes: Vec<String>,
    extra: Map<String, Value>,
}

/// Reads, checks, tokenizes and answers a request.
///
/// # Errors
/// The request is wrong, or not for this model.
pub(crate) fn prepare(
    model: &Model,
    config: &SimulatedWorkerConfig,
    shape: Shape,
    body: &[u8],
) -> Result<Prepared, ApiError> {
    let parsed = Parsed::read(model, shape, body)?;
    let choices = parsed.options.choices();
    if parsed.prompts.len().saturating_mul(choices as usize) > ANSWERS_MAX {
        let message =
            format!("`n` times the number of prompts must be at most {ANSWERS_MAX}: send several requests");
        return Err(RequestError::invalid("n".to_owned(), "invalid_value", message).into());
    }
    let mut answers = Vec::new();
    for (at, prompt) in parsed.prompts.iter().enumerate() {
        let echo = parsed.echoes.get(at).map(String::as_str).unwrap_or_default();
        for choice in 0..choices {
            let (spec, reply) = parsed.answer(model, config, prompt, choice)?;
            answers.push((spec, Script { reply, echo: echo.to_owned(), first_of_prompt: choice == 0 }));
        }
    }
    let stream = parsed.options.stream.then(|| parsed.options.stream_options.unwrap_or_default());
    let prompt_tokens = parsed.prompts.iter().map(|prompt| prompt.len() as u64).sum();
    Ok(Prepared { stream, prompt_tokens, answers })
}

impl Parsed {
    fn read(model: &Model, shape: Shape, body: &[u8]) -> Result<Self, ApiError> {
        let own = |name: &str| match name == model.card().name {
            true => Ok(()),
            false => Err(RequestError::model_not_found(name)),
        };
        match shape {
            Shape::Chat => {
                let chat = parse_chat(body)?;
                own(&chat.model)?;
                let (prompts, output_tokens_max) = (prompt_inputs(model, &chat)?, chat.output_tokens_max());
                Ok(Self {
                    prompts,
                    output_tokens_max,
                    options: chat.options,
                    echoes: vec![],
                    extra: chat.extra,
                })
            }
            Shape::Text => {
                let text = parse_completion(body)?;
                own(&text.model)?;
                let (prompts, output_tokens_max) = (prompt_inputs(model, &text)?, text.output_tokens_max());
                let echoes = if text.echo { echoes(model, text.prompt)? } else { vec![] };
                let (options, extra) = (text.options, text.extra);
                Ok(Self { prompts, output_tokens_max, options, echoes, extra })
            }
        }
    }

    fn answer(
        &self,
        model: &Model,
        config: &SimulatedWorkerConfig,
        prompt: &[u32],
        choice: u32,
    ) -> Result<(RequestSpec, Reply), ApiError> {
        let tokenizer = model.tokenizer();
        let reply = Reply::compose(tokenizer, &self.reply_request(model, config, prompt, choice))?;
        let salt = self.extra.get("cache_salt").and_then(Value::as_str);
        let block_size = NonZeroU32::new(model.card().block_size).unwrap_or(NonZeroU32::MIN);
        // The engine's driver chooses the id.
        let spec = RequestSpec::from_tokens(0, prompt, &reply.tokens, block_size, HashSpace::new(None, salt));
        Ok((spec, reply))
    }

    fn reply_request<'a>(
        &'a self,
        model: &Model,
        config: &SimulatedWorkerConfig,
        prompt: &'a [u32],
        choice: u32,
    ) -> ReplyRequest<'a> {
        let flag = |name: &str| self.extra.get(name).and_then(Value::as_bool).unwrap_or(false);
        let least = self.extra.get("min_tokens").and_then(Value::as_u64).unwrap_or(0);
        let least = u32::try_from(least).unwrap_or(u32::MAX);
        let prompt_tokens = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
        // At least 1: `prompt_inputs` has seen to that.
        let room = model.card().context_length.saturating_sub(prompt_tokens).max(1);
        ReplyRequest {
            prompt,
            choice,
            seed: self.options.seed,
            natural: (config.reply_tokens_min.max(least), config.reply_tokens_max.max(least)),
            limit: self.output_tokens_max.unwrap_or(room).clamp(1, room),
            ignore_end: self.output_tokens_max.is_some() && flag("ignore_eos"),
            stop: &self.options.stop,
        }
    }
}

/// The prompts as their writer knows them: text as it came, without what the tokenizer puts around it.
fn echoes(model: &Model, prompt: Prompt) -> Result<Vec<String>, TokenizerError> {
    let tokenizer = model.tokenizer();
    match prompt {
        Prompt::Text(text) => Ok(vec![text]),
        Prompt::Texts(texts) => Ok(texts),
        Prompt::Tokens(tokens) => Ok(vec![tokenizer.decode(&tokens)?]),
        Prompt::TokenLists(lists) => lists.iter().map(|tokens| tokenizer.decode(tokens)).collect(),
    }
}
