//! Chat templates: Jinja, as `transformers` sets it up, on minijinja. A conversation goes in, the prompt's text comes
//! out. What a template sees of Python is in `python` and `environment`. Called by [`crate::render_chat`].
//!
//! Templates come from the model's files and are trusted to mean well; conversations come from anyone. So the work
//! and the output of one render are bounded ([`RenderLimits`]), and a failed render costs its request alone.

mod clock;
mod environment;
mod python;

pub use clock::Clock;

use environment::RaisedByTemplate;
use minijinja::{Environment, ErrorKind, Value};
use serde::Serialize;
use serde_json::Map;
use std::{
    collections::BTreeMap,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

const NAME: &str = "chat_template";

/// What one render may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenderLimits {
    /// Template instructions executed.
    pub instructions_max: u64,
    /// Length of the rendered prompt, in bytes.
    pub output_bytes_max: usize,
}

impl Default for RenderLimits {
    /// Ten million instructions (about a second; a long conversation needs some ten thousand) and 64 MiB.
    fn default() -> Self {
        Self { instructions_max: 10_000_000, output_bytes_max: 64 << 20 }
    }
}

/// A compiled template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    limits: RenderLimits,
    accepts_parts: bool,
}

/// What a template is given.
#[derive(Clone, Debug, Default)]
pub struct RenderInput {
    /// The conversation: objects with `role` and `content`, as the API has them.
    pub messages: Vec<Map<String, serde_json::Value>>,
    /// Tool definitions; `None` is the template's `none`.
    pub tools: Option<Vec<serde_json::Value>>,
    /// Whether the prompt ends with the opening of the assistant's next message.
    pub add_generation_prompt: bool,
    /// `bos_token`, `eos_token` and others, by name; one that is missing is undefined in the template.
    pub special_tokens: BTreeMap<String, String>,
    /// The request's `chat_template_kwargs`: more variables; these win over all the others.
    pub kwargs: Map<String, serde_json::Value>,
}

/// Why a template cannot be used or a render failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The model has no template.
    #[error(
        "model `{model}` has no chat template: send the prompt to /v1/completions, or add chat_template.jinja to its directory"
    )]
    Missing {
        /// The model's name.
        model: String,
    },
    /// The source is not Jinja that this engine knows.
    #[error("the chat template does not compile: {reason}; correct it or give another chat_template.jinja")]
    Compile {
        /// What is wrong, with the line.
        reason: String,
    },
    /// The template called `raise_exception`: the conversation is not one that the model takes.
    #[error("the model's chat template refuses the conversation: {reason}")]
    Raised {
        /// The template's words.
        reason: String,
    },
    /// The conversation makes the template work too long.
    #[error("the conversation needs more than {instructions_max} template instructions: send fewer messages")]
    TooMuchWork {
        /// The limit.
        instructions_max: u64,
    },
    /// The conversation renders to too much text.
    #[error("the conversation renders to more than {bytes_max} bytes: send less")]
    TooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// The template cannot handle what it was given.
    #[error("the model's chat template cannot render the conversation: {reason}")]
    Failed {
        /// What the engine said, with the line. Holds no message text.
        reason: String,
    },
}

impl ChatTemplate {
    /// Compile `source`; `strftime_now` in it reads `clock`.
    ///
    /// # Errors
    /// [`TemplateError::Compile`].
    pub fn compile(source: &str, clock: Clock) -> Result<Self, TemplateError> {
        Self::compile_with_limits(source, clock, RenderLimits::default())
    }

    /// [`compile`](Self::compile) with other limits.
    ///
    /// # Errors
    /// [`TemplateError::Compile`].
    pub fn compile_with_limits(
        source: &str,
        clock: Clock,
        limits: RenderLimits,
    ) -> Result<Self, TemplateError> {
        let mut environment = environment::build(clock);
        environment.set_fuel(Some(limits.instructions_max));
        environment
            .add_template_owned(NAME, environment::adapted(source))
            .map_err(|error| TemplateError::Compile { reason: describe(&error) })?;
        let mut template = Self { environment, limits, accepts_parts: false };
        template.accepts_parts = template.probe_parts();
        Ok(template)
    }

    /// Whether the template takes `content` as a list of parts. Those that do not get the text of the parts joined.
    #[must_use]
    pub fn accepts_parts(&self) -> bool {
        self.accepts_parts
    }

    /// Render a conversation.
    ///
    /// # Errors
    /// Every variant of [`TemplateError`] but `Missing` and `Compile`.
    pub fn render(&self, input: &RenderInput) -> Result<String, TemplateError> {
        // The engine is other people's code on anyone's data: a panic in it costs this render.
        catch_unwind(AssertUnwindSafe(|| self.render_unguarded(input))).unwrap_or_else(|_| {
            Err(TemplateError::Failed { reason: "the template engine panicked".to_owned() })
        })
    }

    fn render_unguarded(&self, input: &RenderInput) -> Result<String, TemplateError> {
        let template = self.environment.get_template(NAME).map_err(|error| self.failure(&error))?;
        let mut output =
            BoundedOutput { bytes: Vec::new(), bytes_max: self.limits.output_bytes_max, full: false };
        let rendered = template.render_captured_to(variables(input), &mut output).map(|_| ());
        if output.full {
            return Err(TemplateError::TooLong { bytes_max: self.limits.output_bytes_max });
        }
        rendered.map_err(|error| self.failure(&error))?;
        String::from_utf8(output.bytes).map_err(|error| TemplateError::Failed { reason: error.to_string() })
    }

    fn failure(&self, error: &minijinja::Error) -> TemplateError {
        if let Some(raised) = find_raised(error) {
            return TemplateError::Raised { reason: raised.0.clone() };
        }
        match error.kind() {
            ErrorKind::OutOfFuel => {
                TemplateError::TooMuchWork { instructions_max: self.limits.instructions_max }
            }
            _ => TemplateError::Failed { reason: describe(error) },
        }
    }

    /// Render one user message whose content is a list and see whether the part's text comes out, and not as a
    /// printed list.
    fn probe_parts(&self) -> bool {
        const PROBE: &str = "switchtower probe";
        let message = serde_json::json!({"role": "user", "content": [{"type": "text", "text": PROBE}]});
        let messages = message.as_object().cloned().into_iter().collect();
        let input = RenderInput { messages, ..RenderInput::default() };
        self.render(&input)
            .is_ok_and(|text| text.contains(PROBE) && !text.contains("'text'") && !text.contains("\"text\""))
    }
}

/// Everything a template can name, later entries winning.
fn variables(input: &RenderInput) -> BTreeMap<&str, Value> {
    let mut variables = BTreeMap::from([
        ("messages", Value::from_serialize(&input.messages)),
        ("tools", Value::from_serialize(&input.tools)),
        ("documents", Value::from(())),
        ("add_generation_prompt", Value::from(input.add_generation_prompt)),
    ]);
    variables.extend(named(&input.special_tokens));
    variables.extend(named(&input.kwargs));
    variables
}

fn named<'a, V: Serialize + 'a>(
    entries: impl IntoIterator<Item = (&'a String, &'a V)>,
) -> impl Iterator<Item = (&'a str, Value)> {
    entries.into_iter().map(|(name, value)| (name.as_str(), Value::from_serialize(value)))
}

/// The engine's words and the line, without the values involved.
fn describe(error: &minijinja::Error) -> String {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{detail} (line {line})"),
        None => detail,
    }
}

fn find_raised(error: &minijinja::Error) -> Option<&RaisedByTemplate> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(raised) = error.downcast_ref() {
            return Some(raised);
        }
        source = error.source();
    }
    None
}

/// Collects the output and refuses what goes over the limit.
struct BoundedOutput {
    bytes: Vec<u8>,
    bytes_max: usize,
    full: bool,
}

impl io::Write for BoundedOutput {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        if chunk.len() > self.bytes_max - self.bytes.len() {
            self.full = true;
            return Err(io::Error::other("output limit reached"));
        }
        self.bytes.extend_from_slice(chunk);
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
