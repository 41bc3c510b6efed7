//! OpenAI-shaped requests and responses. Bodies become typed requests here, or a [`RequestError`] that names the field
//! and says what would be right; nothing later validates again (field report B94: two validators, two limits).
//!
//! `services/frontend` parses with [`parse_chat`] and [`parse_completion`]; the simulated worker answers with
//! the [`response`] shapes. No request type prints its prompt with `Debug`.

mod chat;
mod completion;
mod error;
mod fields;
mod message;
mod options;
pub mod response;
mod strict_json;
mod tools;

pub use chat::{ChatRequest, parse_chat};
pub use completion::{CompletionRequest, PROMPTS_MAX, Prompt, parse_completion};
pub use error::{ErrorBody, ErrorDetail, RequestError, RequestErrorKind};
pub use message::{MESSAGES_MAX, Message, Role};
pub use options::{CHOICES_MAX, GenerationOptions, STOPS_MAX, StreamOptions};
pub use tools::TOOLS_MAX;
pub(crate) use tools::with_parsed_arguments;

#[cfg(test)]
mod tests;
