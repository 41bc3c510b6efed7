//! From a body to the tokens that are routed: parse, validate, find the model, render, tokenize, check the length. All
//! the judging of a body is done by `models`; nothing here books or sends anything. CPU-bound: `generate` runs it where
//! it harms no other request.

use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc};
use switchtower_models::{
    Model,
    openai::{GenerationOptions, RequestError, parse_chat, parse_completion},
    prompt_inputs,
};

/// The endpoints that generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `POST /v1/chat/completions`.
    Chat,
    /// `POST /v1/completions`.
    Completions,
}

impl Endpoint {
    /// The path, here and at the workers.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
        }
    }

    /// The metric label.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Chat => "chat_completions",
            Self::Completions => "completions",
        }
    }
}

/// The configured models by public name.
pub(crate) type Models = BTreeMap<Arc<str>, Arc<Model>>;

/// What routing needs to know of a body. Holds the prompt's tokens: never print it.
pub(crate) struct RoutedPrompt {
    pub(crate) model: Arc<str>,
    /// All prompts of the request, one after the other: the first decides what is cached, all of them are work.
    pub(crate) tokens: Arc<[u32]>,
    /// Separates the caches of those who must not share them; a field of vLLM and SGLang.
    pub(crate) cache_salt: Option<String>,
    /// More output tokens than this cannot be true.
    pub(crate) output_tokens_max: u64,
}

/// A body that is refused, with the model where it was recognised.
#[derive(Debug)]
pub(crate) struct RefusedBody {
    pub(crate) model: Option<Arc<str>>,
    pub(crate) error: RequestError,
}

/// Judges a body.
///
/// # Errors
/// The first thing that is wrong with it.
pub(crate) fn judge(models: &Models, endpoint: Endpoint, body: &Bytes) -> Result<RoutedPrompt, RefusedBody> {
    match endpoint {
        Endpoint::Chat => {
            let request = parse_chat(body)?;
            let (name, model) = find(models, &request.model)?;
            let tokens = prompt_inputs(model, &request).map_err(|error| RefusedBody::of(&name, error))?;
            let salt = request.extra.get("cache_salt");
            Ok(RoutedPrompt::new(name, model, tokens, &request.options, salt))
        }
        Endpoint::Completions => {
            let request = parse_completion(body)?;
            let (name, model) = find(models, &request.model)?;
            let tokens = prompt_inputs(model, &request).map_err(|error| RefusedBody::of(&name, error))?;
            let salt = request.extra.get("cache_salt");
            Ok(RoutedPrompt::new(name, model, tokens, &request.options, salt))
        }
    }
}

fn find<'a>(models: &'a Models, name: &str) -> Result<(Arc<str>, &'a Model), RefusedBody> {
    let (name, model) = models.get_key_value(name).ok_or_else(|| RequestError::model_not_found(name))?;
    Ok((Arc::clone(name), model))
}

impl RoutedPrompt {
    fn new(
        name: Arc<str>,
        model: &Model,
        prompts: Vec<Vec<u32>>,
        options: &GenerationOptions,
        cache_salt: Option<&serde_json::Value>,
    ) -> Self {
        let answers = u64::from(options.choices()).saturating_mul(prompts.len() as u64);
        Self {
            model: name,
            tokens: prompts.concat().into(),
            cache_salt: cache_salt.and_then(|salt| salt.as_str()).map(str::to_owned),
            output_tokens_max: answers.saturating_mul(u64::from(model.card().context_length)),
        }
    }
}

impl RefusedBody {
    fn of(model: &Arc<str>, error: RequestError) -> Self {
        Self { model: Some(Arc::clone(model)), error }
    }
}

impl From<RequestError> for RefusedBody {
    fn from(error: RequestError) -> Self {
        Self { model: None, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchtower_models::ModelSource;

    fn models() -> Models {
        let model = Model::load(&ModelSource::BuiltIn).unwrap();
        Models::from([(model.card().name.as_str().into(), Arc::new(model))])
    }

    fn judge_json(endpoint: Endpoint, json: &str) -> Result<RoutedPrompt, RefusedBody> {
        judge(&models(), endpoint, &Bytes::copy_from_slice(json.as_bytes()))
    }

    #[test]
    fn several_prompts_are_all_work_and_the_first_leads() {
        let json = r#"{"model":"switchtower-demo","prompt":[[1,2,3],[4,5]],"n":2,"cache_salt":"s"}"#;
        let prompt = judge_json(Endpoint::Completions, json).unwrap();
        assert_eq!(*prompt.tokens, [1, 2, 3, 4, 5]);
        assert_eq!(prompt.cache_salt.as_deref(), Some("s"));
        assert_eq!(prompt.output_tokens_max, 2 * 2 * 32_768);
    }

    #[test]
    fn a_refusal_names_the_model_once_it_is_known() {
        let refused =
            judge_json(Endpoint::Chat, r#"{"model":"no","messages":[{"role":"user","content":"x"}]}"#);
        let refused = refused.err().unwrap();
        assert_eq!((refused.model, refused.error.status()), (None, 404));
        let json = r#"{"model":"switchtower-demo","prompt":[1],"max_tokens":40000}"#;
        let refused = judge_json(Endpoint::Completions, json).err().unwrap();
        assert_eq!(refused.model.as_deref(), Some("switchtower-demo"));
        assert_eq!(refused.error.code, "context_length_exceeded");
    }
}
