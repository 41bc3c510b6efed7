//! The model card: what is public about one model. Written by the loader (`model`), served by `/v1/models`, stored
//! in discovery. It holds facts only; loaded tokenizers and compiled templates live in [`crate::Model`].

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf};

/// Facts about one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelCard {
    /// Public name, as in the `model` field of requests: 1 to 256 characters, no control characters.
    pub name: String,
    /// Prompt and output together, in tokens. At least 2: one of each.
    pub context_length: u32,
    /// Tokens per KV-cache block.
    pub block_size: u32,
    /// Text of the token that begins a sequence, for templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos_token: Option<String>,
    /// Text of the token that ends a sequence, for templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eos_token: Option<String>,
    /// Other named tokens that a template may use (`pad_token`, `unk_token`, …), by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub special_tokens: BTreeMap<String, String>,
    /// Jinja source of the chat template; without one the model serves completions only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<String>,
    /// Jinja source used instead when a request brings tools, for models that name a `tool_use` template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_template: Option<String>,
    /// Where the tokenizer comes from.
    pub tokenizer: TokenizerSource,
    /// When the model was made, in seconds since 1970 (the `created` field of `/v1/models`).
    pub created_unix_s: u64,
    /// How templates see the arguments of tool calls.
    #[serde(default)]
    pub tool_arguments: ToolArguments,
}

/// Where a tokenizer comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenizerSource {
    /// The one linked into the program.
    BuiltIn,
    /// A `tokenizer.json`.
    Path(PathBuf),
}

/// How a chat template sees `tool_calls[].function.arguments`, which the API carries as JSON text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolArguments {
    /// As the object that the text holds: what vLLM and SGLang hand to templates, so that hashes agree with theirs.
    #[default]
    Parsed,
    /// As the text itself: what a bare `apply_chat_template` gets.
    AsSent,
}

/// A card that cannot be used. Each names its field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// The name is not one.
    #[error("name: `{name}` cannot name a model: use 1 to 256 characters without control characters")]
    Name {
        /// The name, shortened.
        name: String,
    },
    /// No room for a prompt token and an output token.
    #[error("context_length: {tokens} tokens leave no room for a prompt and an answer: give at least 2")]
    ContextLength {
        /// The length given, in tokens.
        tokens: u32,
    },
    /// Zero, or larger than the context.
    #[error(
        "block_size: {tokens} tokens per block is out of range: give 1 to {context_length} (context_length)"
    )]
    BlockSize {
        /// The size given, in tokens.
        tokens: u32,
        /// The card's context length, in tokens.
        context_length: u32,
    },
    /// A template without text.
    #[error("{field}: the template is empty: leave the field out if the model has none")]
    EmptyTemplate {
        /// `chat_template` or `tool_use_template`.
        field: &'static str,
    },
}

impl ModelCard {
    /// Longest model name, in characters.
    pub const NAME_CHARS_MAX: usize = 256;
    /// Tokens per block where nothing else is said.
    pub const DEFAULT_BLOCK_SIZE: u32 = 16;

    /// Whether every field is in its range.
    ///
    /// # Errors
    /// [`CardError`] for the first field that is not.
    pub fn validate(&self) -> Result<(), CardError> {
        check_name(&self.name)?;
        if self.context_length < 2 {
            return Err(CardError::ContextLength { tokens: self.context_length });
        }
        if self.block_size == 0 || self.block_size > self.context_length {
            let (tokens, context_length) = (self.block_size, self.context_length);
            return Err(CardError::BlockSize { tokens, context_length });
        }
        let templates =
            [("chat_template", &self.chat_template), ("tool_use_template", &self.tool_use_template)];
        match templates.iter().find(|(_, text)| text.as_ref().is_some_and(|text| text.trim().is_empty())) {
            Some((field, _)) => Err(CardError::EmptyTemplate { field }),
            None => Ok(()),
        }
    }
}

/// Refuses what cannot name a model.
pub(crate) fn check_name(name: &str) -> Result<(), CardError> {
    let shortened = || name.chars().take(64).collect();
    if is_model_name(name) { Ok(()) } else { Err(CardError::Name { name: shortened() }) }
}

/// Whether `name` can name a model.
pub(crate) fn is_model_name(name: &str) -> bool {
    let chars = name.chars().take(ModelCard::NAME_CHARS_MAX + 1).count();
    (1..=ModelCard::NAME_CHARS_MAX).contains(&chars) && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    #[test]
    fn a_wrong_card_names_the_field() {
        type Change = fn(&mut ModelCard);
        let wrong: [(&str, Change); 6] = [
            ("name", |card| card.name = String::new()),
            ("name", |card| card.name = "n".repeat(257)),
            ("context_length", |card| card.context_length = 1),
            ("block_size", |card| card.block_size = 0),
            ("block_size", |card| card.block_size = 1 << 20),
            ("chat_template", |card| card.chat_template = Some(" \n".into())),
        ];
        for (field, change) in wrong {
            let mut card = builtin::card(crate::builtin::NAME).unwrap();
            change(&mut card);
            let error = card.validate().unwrap_err().to_string();
            assert!(error.starts_with(field), "{error}");
        }
    }

    #[test]
    fn a_card_survives_json() {
        let card = builtin::card(crate::builtin::NAME).unwrap();
        let text = serde_json::to_string(&card).unwrap();
        assert_eq!(serde_json::from_str::<ModelCard>(&text).unwrap(), card);
    }
}
