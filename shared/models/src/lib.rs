//! What the router knows about models: cards, tokenizers, chat templates, and the OpenAI request shapes that are
//! turned into token ids with them.
//!
//! `services/frontend` parses bodies with [`openai`] and asks [`prompt_inputs`] for the tokens to hash;
//! `services/worker` answers with the response shapes; `services/switchtower` reads [`EngineConfig`]. Nothing here
//! opens a socket or spawns a task. Encoding a long prompt takes milliseconds of CPU: callers on an async runtime
//! run it on a blocking thread.

mod builtin;
mod card;
mod engine_config;
mod hugging_face;
mod model;
pub mod openai;
mod prompt;
pub mod template;
mod tokenizer;

pub use card::{CardError, ModelCard, TokenizerSource, ToolArguments};
pub use engine_config::{EngineConfig, EngineConfigError, Limits, Timeouts};
pub use model::{Model, ModelError, ModelSource};
pub use prompt::{AnyRequest, prompt_inputs, render_chat};
pub use template::{ChatTemplate, Clock, RenderInput, RenderLimits, TemplateError};
pub use tokenizer::{Tokenizer, TokenizerError};
