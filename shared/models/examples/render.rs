//! Reads JSON lines, writes JSON lines: encodes, decodes and renders, so that tests in other languages can compare
//! this crate with the originals (`tests/python/parity_*.py`). Not part of the program.
//!
//! `{"op": "encode", "tokenizer": PATH, "text": …, "add_special_tokens": false}` → `{"ids": […]}`
//! `{"op": "decode", "tokenizer": PATH, "ids": […]}` → `{"text": …}`
//! `{"op": "render", "template": SOURCE, "messages": […], "tools": …, "add_generation_prompt": …,
//!   "special_tokens": {…}, "kwargs": {…}, "unix_s": N}` → `{"text": …}`
//! `{"op": "prompt", "model": DIRECTORY, "context_length": N, "chat": {…}}` or `"completion"` → `{"ids": [[…]]}`
//!
//! Anything that fails answers `{"error": …}`.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead, Write, stdin, stdout},
    path::PathBuf,
};
use switchtower_models::{
    ChatTemplate, Clock, Model, ModelSource, RenderInput, Tokenizer, openai, prompt_inputs,
};

/// The example's error is its text.
type Outcome<T> = Result<T, String>;

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Operation {
    Encode {
        tokenizer: PathBuf,
        text: String,
        #[serde(default)]
        add_special_tokens: bool,
    },
    Decode {
        tokenizer: PathBuf,
        ids: Vec<u32>,
    },
    Render(Render),
    Prompt {
        model: PathBuf,
        context_length: u32,
        chat: Option<Value>,
        completion: Option<Value>,
    },
}

#[derive(Deserialize)]
struct Render {
    template: String,
    messages: Vec<Map<String, Value>>,
    tools: Option<Vec<Value>>,
    #[serde(default)]
    add_generation_prompt: bool,
    #[serde(default)]
    special_tokens: BTreeMap<String, String>,
    #[serde(default)]
    kwargs: Map<String, Value>,
    #[serde(default)]
    unix_s: i64,
}

/// What has been loaded, by its source.
#[derive(Default)]
struct Loaded {
    tokenizers: HashMap<PathBuf, Tokenizer>,
    templates: HashMap<(String, i64), ChatTemplate>,
    models: HashMap<PathBuf, Model>,
}

impl Loaded {
    fn tokenizer(&mut self, path: PathBuf) -> Outcome<&Tokenizer> {
        if !self.tokenizers.contains_key(&path) {
            let bytes = std::fs::read(&path).map_err(|error| error.to_string())?;
            let tokenizer = Tokenizer::from_json(&bytes).map_err(|error| error.to_string())?;
            self.tokenizers.insert(path.clone(), tokenizer);
        }
        Ok(&self.tokenizers[&path])
    }

    fn template(&mut self, source: &str, unix_s: i64) -> Outcome<&ChatTemplate> {
        let key = (source.to_owned(), unix_s);
        if !self.templates.contains_key(&key) {
            let template =
                ChatTemplate::compile(source, Clock::fixed(unix_s)).map_err(|error| error.to_string())?;
            self.templates.insert(key.clone(), template);
        }
        Ok(&self.templates[&key])
    }

    fn model(&mut self, path: PathBuf, context_length: u32) -> Outcome<&Model> {
        if !self.models.contains_key(&path) {
            let source = ModelSource::Path {
                name: "parity".into(),
                path: path.clone(),
                block_size: None,
                context_length: Some(context_length),
            };
            let model = Model::load(&source).map_err(|error| error.to_string())?;
            self.models.insert(path.clone(), model);
        }
        Ok(&self.models[&path])
    }

    fn perform(&mut self, line: &str) -> Outcome<Value> {
        match serde_json::from_str(line).map_err(|error| error.to_string())? {
            Operation::Encode { tokenizer, text, add_special_tokens } => {
                let ids = self.tokenizer(tokenizer)?.encode(&text, add_special_tokens);
                Ok(json!({"ids": ids.map_err(|error| error.to_string())?}))
            }
            Operation::Decode { tokenizer, ids } => {
                let text = self.tokenizer(tokenizer)?.decode(&ids);
                Ok(json!({"text": text.map_err(|error| error.to_string())?}))
            }
            Operation::Render(render) => self.render(render),
            Operation::Prompt { model, context_length, chat, completion } => {
                let model = self.model(model, context_length)?;
                let ids = match (chat, completion) {
                    (Some(body), _) => openai::parse_chat(body.to_string().as_bytes())
                        .and_then(|request| prompt_inputs(model, &request)),
                    (None, body) => {
                        let body = body.unwrap_or_default().to_string();
                        openai::parse_completion(body.as_bytes())
                            .and_then(|request| prompt_inputs(model, &request))
                    }
                };
                Ok(json!({"ids": ids.map_err(|error| error.to_string())?}))
            }
        }
    }

    fn render(&mut self, render: Render) -> Outcome<Value> {
        let template = self.template(&render.template, render.unix_s)?;
        let input = RenderInput {
            messages: render.messages,
            tools: render.tools,
            add_generation_prompt: render.add_generation_prompt,
            special_tokens: render.special_tokens,
            kwargs: render.kwargs,
        };
        template.render(&input).map(|text| json!({"text": text})).map_err(|error| error.to_string())
    }
}

fn main() -> std::io::Result<()> {
    let mut loaded = Loaded::default();
    let mut output = stdout().lock();
    for line in stdin().lock().lines() {
        let answer = loaded.perform(&line?).unwrap_or_else(|error| json!({"error": error}));
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}
