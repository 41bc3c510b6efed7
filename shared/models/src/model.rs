//! One loaded model: its card, its tokenizer and its compiled chat template. Loaded once at start (or when a model is
//! registered) and shared behind an `Arc`; nothing here is cached across models (field report B120).

use crate::{
    CardError, ChatTemplate, Clock, ModelCard, TemplateError, Tokenizer, TokenizerError, TokenizerSource,
    builtin,
    hugging_face::{self, Description},
};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelSource {
    /// The model linked into the program, `switchtower-demo`.
    BuiltIn,
    /// The model linked into the program under a name of the user's.
    BuiltInAs {
        /// Public name, as in the `model` field of requests.
        name: String,
    },
    /// A directory in the Hugging Face layout, or the `tokenizer.json` in it.
    Path {
        /// Public name, as in the `model` field of requests.
        name: String,
        /// The directory or file.
        path: PathBuf,
        /// Tokens per block; 16 unless given. Must be the engines' own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        block_size: Option<u32>,
        /// Context length in tokens; from the model's files unless given. Must be the engines' own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context_length: Option<u32>,
    },
}

impl ModelSource {
    /// The model at `path` under `name`, with everything else from its files.
    #[must_use]
    pub fn path(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self::Path { name: name.into(), path: path.into(), block_size: None, context_length: None }
    }

    /// The built-in model under `name`.
    #[must_use]
    pub fn built_in_as(name: impl Into<String>) -> Self {
        Self::BuiltInAs { name: name.into() }
    }

    /// The public name that the model will have.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::BuiltIn => builtin::NAME,
            Self::BuiltInAs { name } | Self::Path { name, .. } => name,
        }
    }
}

/// A model that cannot be loaded. Each says which file or field, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// There is no tokenizer at the path.
    #[error("{path}: no such file: give a directory that holds a tokenizer.json, or the file itself", path = path.display())]
    NoTokenizer {
        /// The file looked for.
        path: PathBuf,
    },
    /// A file is there but cannot be read.
    #[error("{path}: cannot be read: {source}; check its permissions and size", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not what its name says.
    #[error("{path}: not valid: {reason}; fetch it again from where the model came", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// Nothing says how long a prompt may be.
    #[error(
        "model `{name}`: context length unknown: neither config.json (max_position_embeddings) nor \
         tokenizer_config.json (model_max_length) beside {path} gives one; put one of them there, or set context_length for this model",
        path = path.display()
    )]
    ContextLength {
        /// The model.
        name: String,
        /// Where it was read.
        path: PathBuf,
    },
    /// The card is out of range.
    #[error("model `{name}`: {source}")]
    Card {
        /// The model.
        name: String,
        /// The field.
        source: CardError,
    },
    /// The tokenizer cannot be used.
    #[error("model `{name}`: {source}")]
    Tokenizer {
        /// The model.
        name: String,
        /// Why.
        source: TokenizerError,
    },
    /// The chat template cannot be compiled.
    #[error("model `{name}`: {source}")]
    Template {
        /// The model.
        name: String,
        /// Why.
        source: TemplateError,
    },
}

impl ModelError {
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    pub(crate) fn parse(path: &Path, reason: &impl std::fmt::Display) -> Self {
        Self::Parse { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// A model ready for use.
#[derive(Debug)]
pub struct Model {
    card: ModelCard,
    tokenizer: Tokenizer,
    chat_template: Option<ChatTemplate>,
    tool_use_template: Option<ChatTemplate>,
}

impl Model {
    /// Load `source`; templates that ask for the time get the system's. Blocks on the disk.
    ///
    /// # Errors
    /// [`ModelError`]: which file or field, and what to do.
    pub fn load(source: &ModelSource) -> Result<Self, ModelError> {
        Self::load_with_clock(source, &Clock::system())
    }

    /// [`load`](Self::load) with the clock that templates see.
    ///
    /// # Errors
    /// As `load`.
    pub fn load_with_clock(source: &ModelSource, clock: &Clock) -> Result<Self, ModelError> {
        let name = source.name().to_owned();
        let failed = |source| ModelError::Tokenizer { name: name.clone(), source };
        let (card, tokenizer) = match source {
            ModelSource::BuiltIn | ModelSource::BuiltInAs { .. } => {
                let card =
                    builtin::card(&name).map_err(|source| ModelError::Card { name: name.clone(), source })?;
                (card, builtin::tokenizer().map_err(failed)?)
            }
            ModelSource::Path { name, path, block_size, context_length } => {
                let description =
                    Description { name, path, block_size: *block_size, context_length: *context_length };
                let (card, bytes) = hugging_face::read(&description)?;
                let tokenizer =
                    Tokenizer::from_json(&bytes).map_err(|error| match (error, &card.tokenizer) {
                        (TokenizerError::Load { reason }, TokenizerSource::Path(file)) => {
                            ModelError::parse(file, &reason)
                        }
                        (other, _) => failed(other),
                    })?;
                (card, tokenizer)
            }
        };
        Self::assemble(card, tokenizer, clock)
    }

    /// A model from its parts.
    ///
    /// # Errors
    /// [`ModelError::Card`] if a field is out of range, [`ModelError::Template`] if a template does not compile.
    pub fn assemble(card: ModelCard, tokenizer: Tokenizer, clock: &Clock) -> Result<Self, ModelError> {
        card.validate().map_err(|source| ModelError::Card { name: card.name.clone(), source })?;
        let compile = |source: &Option<String>| {
            let compile = |source: &String| ChatTemplate::compile(source, clock.clone());
            let compiled = source.as_ref().map(compile).transpose();
            compiled.map_err(|source| ModelError::Template { name: card.name.clone(), source })
        };
        let chat_template = compile(&card.chat_template)?;
        let tool_use_template = compile(&card.tool_use_template)?;
        Ok(Self { card, tokenizer, chat_template, tool_use_template })
    }

    /// The card.
    #[must_use]
    pub fn card(&self) -> &ModelCard {
        &self.card
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The template for a request with or without tools.
    ///
    /// # Errors
    /// [`TemplateError::Missing`] if the model has none: it serves completions only.
    pub fn chat_template(&self, with_tools: bool) -> Result<&ChatTemplate, TemplateError> {
        let special = self.tool_use_template.as_ref().filter(|_| with_tools);
        special
            .or(self.chat_template.as_ref())
            .ok_or_else(|| TemplateError::Missing { model: self.card.name.clone() })
    }
}
