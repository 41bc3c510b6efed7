//! Reads a model directory in the Hugging Face layout: `tokenizer.json`, and beside it, all optional,
//! `tokenizer_config.json`, `chat_template.jinja`, `config.json` and `generation_config.json`. Called by `model` only.

use crate::{ModelCard, ModelError, TokenizerSource};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Largest `tokenizer.json` read, in bytes.
const TOKENIZER_BYTES_MAX: u64 = 512 << 20;
/// Largest other file read, in bytes.
const CONFIG_BYTES_MAX: u64 = 32 << 20;
/// Above this a `model_max_length` means "unknown": the library writes 1e30 there.
const CONTEXT_LENGTH_MAX: f64 = 2_147_483_647.0;

/// What the caller said about a model on disk.
pub(crate) struct Description<'a> {
    /// Public name.
    pub(crate) name: &'a str,
    /// The directory, or the `tokenizer.json` in it.
    pub(crate) path: &'a Path,
    /// Tokens per block, where not the default.
    pub(crate) block_size: Option<u32>,
    /// Context length in tokens, where not the files'.
    pub(crate) context_length: Option<u32>,
}

/// Read the card and the tokenizer's bytes.
pub(crate) fn read(description: &Description<'_>) -> Result<(ModelCard, Vec<u8>), ModelError> {
    let tokenizer_path = tokenizer_path(description.path);
    let directory = tokenizer_path.parent().unwrap_or(Path::new("")).to_owned();
    let bytes = read_required(&tokenizer_path)?;
    let tokenizer_config: TokenizerConfig = read_json(&directory.join("tokenizer_config.json"))?;
    let config: EngineFile = read_json(&directory.join("config.json"))?;
    let generation: GenerationFile = read_json(&directory.join("generation_config.json"))?;
    let mut templates = tokenizer_config.templates();
    if let Some(source) = read_text(&directory.join("chat_template.jinja"))? {
        templates.chat = Some(source);
    }
    let card = ModelCard {
        name: description.name.to_owned(),
        context_length: context_length(
            description,
            &[tokenizer_config.context_length(), config.context_length(), generation.context_length()],
        )?,
        block_size: description.block_size.unwrap_or(ModelCard::DEFAULT_BLOCK_SIZE),
        bos_token: tokenizer_config.token("bos_token"),
        eos_token: tokenizer_config.token("eos_token"),
        special_tokens: tokenizer_config.other_tokens(),
        chat_template: templates.chat,
        tool_use_template: templates.tool_use,
        created_unix_s: modified_unix_s(&tokenizer_path),
        tokenizer: TokenizerSource::Path(tokenizer_path),
        tool_arguments: crate::ToolArguments::default(),
    };
    Ok((card, bytes))
}

/// The part of `tokenizer_config.json` that matters here.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct TokenizerConfig {
    chat_template: Option<TemplateField>,
    model_max_length: Option<Value>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// One template, or several by name.
#[derive(Deserialize)]
#[serde(untagged)]
enum TemplateField {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

/// The templates a model has.
#[derive(Default)]
pub(crate) struct Templates {
    pub(crate) chat: Option<String>,
    pub(crate) tool_use: Option<String>,
}

impl TokenizerConfig {
    /// Text of the special token `name`, given as a string or as an object with `content`.
    pub(crate) fn token(&self, name: &str) -> Option<String> {
        token_text(self.rest.get(name)?)
    }

    /// Every other `…_token`.
    pub(crate) fn other_tokens(&self) -> BTreeMap<String, String> {
        let named = self.rest.iter().filter(|(name, _)| name.ends_with("_token"));
        named
            .filter(|(name, _)| {
                !matches!(name.as_str(), "bos_token" | "eos_token" | "add_bos_token" | "add_eos_token")
            })
            .filter_map(|(name, value)| Some((name.clone(), token_text(value)?)))
            .collect()
    }

    /// The templates; of several, `default` and `tool_use` count, as in transformers.
    pub(crate) fn templates(&self) -> Templates {
        let named = match &self.chat_template {
            None => return Templates::default(),
            Some(TemplateField::One(source)) => {
                return Templates { chat: Some(source.clone()), tool_use: None };
            }
            Some(TemplateField::Named(named)) => named,
        };
        let find = |name| named.iter().find(|one| one.name == name).map(|one| one.template.clone());
        Templates { chat: find("default"), tool_use: find("tool_use") }
    }

    fn context_length(&self) -> Option<u32> {
        tokens(self.model_max_length.as_ref()?)
    }
}

/// The part of `config.json` that matters here; models that also see or hear keep it under `text_config`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct EngineFile {
    max_position_embeddings: Option<Value>,
    text_config: Option<Box<EngineFile>>,
}

impl EngineFile {
    fn context_length(&self) -> Option<u32> {
        let own = self.max_position_embeddings.as_ref().and_then(tokens);
        own.or_else(|| self.text_config.as_ref()?.context_length())
    }
}

/// `generation_config.json`: some models give their context length only here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct GenerationFile {
    max_length: Option<Value>,
}

impl GenerationFile {
    /// 20 is what the library writes when nobody chose.
    fn context_length(&self) -> Option<u32> {
        self.max_length.as_ref().and_then(tokens).filter(|length| *length > 20)
    }
}

/// The caller's word, else the smaller of the two files that bound it, else the generation limit.
fn context_length(description: &Description<'_>, files: &[Option<u32>; 3]) -> Result<u32, ModelError> {
    let [tokenizer, engine, generation] = *files;
    let smaller = [tokenizer, engine].into_iter().flatten().min();
    description.context_length.or(smaller).or(generation).ok_or_else(|| ModelError::ContextLength {
        name: description.name.to_owned(),
        path: description.path.to_owned(),
    })
}

fn tokens(value: &Value) -> Option<u32> {
    let number = value.as_f64().filter(|number| (2.0..=CONTEXT_LENGTH_MAX).contains(number))?;
    // In range, so nothing but a fraction is lost.
    Some(number as u32)
}

fn token_text(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_owned)
}

fn tokenizer_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() }
}

fn modified_unix_s(path: &Path) -> u64 {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).map_or(0, |age| age.as_secs())
}

fn read_required(path: &Path) -> Result<Vec<u8>, ModelError> {
    let read = read_bounded(path, TOKENIZER_BYTES_MAX).map_err(|source| ModelError::read(path, source))?;
    read.ok_or_else(|| ModelError::NoTokenizer { path: path.to_owned() })
}

fn read_text(path: &Path) -> Result<Option<String>, ModelError> {
    let Some(bytes) =
        read_bounded(path, CONFIG_BYTES_MAX).map_err(|source| ModelError::read(path, source))?
    else {
        return Ok(None);
    };
    String::from_utf8(bytes).map(Some).map_err(|error| ModelError::parse(path, &error))
}

/// The file's contents, or the default where there is no such file.
fn read_json<T: Default + for<'de> Deserialize<'de>>(path: &Path) -> Result<T, ModelError> {
    match read_bounded(path, CONFIG_BYTES_MAX).map_err(|source| ModelError::read(path, source))? {
        None => Ok(T::default()),
        Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| ModelError::parse(path, &error)),
    }
}

/// The file's bytes, `None` if there is no such file, an error if it is larger than `bytes_max`.
fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("larger than {bytes_max} bytes")));
    }
    Ok(Some(bytes))
}
