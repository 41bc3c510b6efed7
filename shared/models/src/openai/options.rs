//! The fields that chat and completion requests share: how to sample, when to stop, how to answer. Ranges are
//! OpenAI's; fields of the engines (`top_k`, `min_p`, …) are checked where they are known and passed on.

use super::{
    RequestError,
    fields::{Fields, NumberRange, boolean, integer, kind, shown, text},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Most stop strings (vLLM's limit; OpenAI's is 4).
pub const STOPS_MAX: usize = 32;
/// Most answers to one prompt.
pub const CHOICES_MAX: u32 = 128;

/// How to answer. Fields that were absent or null are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GenerationOptions {
    /// 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Above 0, at most 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Answers per prompt, 1 to [`CHOICES_MAX`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<u32>,
    /// -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// Any 64-bit integer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// At most [`STOPS_MAX`] strings, none empty. A single string becomes a list of one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Most output tokens, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// The end user, as the client calls them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether to answer as server-sent events.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
    /// Only with `stream`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
}

/// Options of a streamed answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamOptions {
    /// Whether a last chunk carries the usage.
    pub include_usage: bool,
    /// Whether every chunk carries the usage so far (a field of vLLM).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continuous_usage_stats: bool,
}

impl GenerationOptions {
    pub(super) fn take(fields: &mut Fields) -> Result<Self, RequestError> {
        let penalty = NumberRange::closed(-2.0, 2.0);
        let options = Self {
            temperature: fields.number("temperature", &NumberRange::closed(0.0, 2.0))?,
            top_p: fields.number("top_p", &NumberRange::above(0.0, 1.0))?,
            n: fields.count("n", 1, CHOICES_MAX)?,
            presence_penalty: fields.number("presence_penalty", &penalty)?,
            frequency_penalty: fields.number("frequency_penalty", &penalty)?,
            seed: fields.integer("seed", i64::MIN..=i64::MAX)?,
            stop: take_stop(fields)?,
            max_tokens: fields.count("max_tokens", 1, u32::MAX)?,
            user: fields.string("user")?,
            stream: fields.boolean("stream")?.unwrap_or(false),
            stream_options: take_stream_options(fields)?,
        };
        if options.stream_options.is_some() && !options.stream {
            let message = "is only allowed with `stream`: true; set that or leave this out";
            return Err(RequestError::wrong_value("stream_options", message));
        }
        check_engine_fields(fields)?;
        Ok(options)
    }

    /// Answers per prompt.
    #[must_use]
    pub fn choices(&self) -> u32 {
        self.n.unwrap_or(1)
    }

    /// Whether a streamed answer ends with its usage.
    #[must_use]
    pub fn include_usage(&self) -> bool {
        self.stream_options.is_some_and(|options| options.include_usage)
    }
}

fn take_stop(fields: &mut Fields) -> Result<Vec<String>, RequestError> {
    let items = match fields.take("stop") {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) if items.len() <= STOPS_MAX => items,
        Some(Value::Array(items)) => {
            let message = format!("must hold at most {STOPS_MAX} strings; got {}", items.len());
            return Err(RequestError::wrong_value("stop", message));
        }
        Some(Value::String(one)) => return Ok(vec![checked_stop("stop", &one)?]),
        Some(other) => {
            let expected = format!("a string or an array of at most {STOPS_MAX} strings");
            return Err(RequestError::wrong_type("stop", &expected, &other));
        }
    };
    let path = |index| format!("stop[{index}]");
    let checked = |(index, item): (usize, &Value)| checked_stop(&path(index), text(&path(index), item)?);
    items.iter().enumerate().map(checked).collect()
}

fn checked_stop(path: &str, stop: &str) -> Result<String, RequestError> {
    if stop.is_empty() {
        return Err(RequestError::wrong_value(path, "must not be empty: leave it out to stop nowhere"));
    }
    Ok(stop.to_owned())
}

fn take_stream_options(fields: &mut Fields) -> Result<Option<StreamOptions>, RequestError> {
    let Some(object) = fields.object("stream_options")? else {
        return Ok(None);
    };
    let flag = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(value) => boolean(&format!("stream_options.{name}"), value),
    };
    let (include_usage, continuous_usage_stats) = (flag("include_usage")?, flag("continuous_usage_stats")?);
    Ok(Some(StreamOptions { include_usage, continuous_usage_stats }))
}

/// Fields that stay among the unknown ones, but whose ranges the engines share.
fn check_engine_fields(fields: &Fields) -> Result<(), RequestError> {
    let numbers = [
        ("min_p", NumberRange::closed(0.0, 1.0)),
        ("repetition_penalty", NumberRange::above(0.0, 2.0)),
        ("length_penalty", NumberRange::closed(-100.0, 100.0)),
    ];
    for (name, range) in &numbers {
        fields.peek(name).map(|value| range.check(name, value)).transpose()?;
    }
    let integers = [
        ("top_k", -1..=1_000_000),
        ("min_tokens", 0..=i64::from(u32::MAX)),
        ("priority", i64::MIN..=i64::MAX),
    ];
    for (name, range) in integers {
        fields.peek(name).map(|value| integer(name, value, range)).transpose()?;
    }
    for name in ["ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "add_special_tokens"] {
        fields.peek(name).map(|value| boolean(name, value)).transpose()?;
    }
    fields.peek("logit_bias").map(check_logit_bias).transpose()?;
    fields.peek("response_format").map(check_response_format).transpose()?;
    Ok(())
}

fn check_logit_bias(value: &Value) -> Result<(), RequestError> {
    let Value::Object(biases) = value else {
        return Err(RequestError::wrong_type("logit_bias", "an object of token ids and biases", value));
    };
    for (token, bias) in biases {
        let path = format!("logit_bias.{}", shown(token));
        if token.parse::<u32>().is_err() {
            return Err(RequestError::wrong_value(&path, "must be keyed by a token id, like \"50256\""));
        }
        NumberRange::closed(-100.0, 100.0).check(&path, bias)?;
    }
    Ok(())
}

fn check_response_format(value: &Value) -> Result<(), RequestError> {
    const TYPES: &str = "text, json_object, json_schema or structural_tag";
    let Value::Object(format) = value else {
        return Err(RequestError::wrong_type("response_format", "an object with `type`", value));
    };
    match format.get("type") {
        None | Some(Value::Null) => Err(RequestError::missing("response_format.type".to_owned(), TYPES)),
        Some(Value::String(name)) => check_format_name(name, format),
        Some(other) => Err(RequestError::wrong_type("response_format.type", TYPES, other)),
    }
}

fn check_format_name(name: &str, format: &Map<String, Value>) -> Result<(), RequestError> {
    const PATH: &str = "response_format.json_schema";
    match (name, format.get("json_schema")) {
        ("text" | "json_object" | "structural_tag", _) => Ok(()),
        ("json_schema", None | Some(Value::Null)) => {
            Err(RequestError::missing(PATH.to_owned(), "an object with `name` and `schema`"))
        }
        ("json_schema", Some(Value::Object(schema))) => match schema.get("schema") {
            None | Some(Value::Null | Value::Object(_)) => Ok(()),
            Some(other) => {
                let message = format!("must be a JSON schema (an object), not {}", kind(other));
                Err(RequestError::invalid(format!("{PATH}.schema"), "invalid_type", message))
            }
        },
        ("json_schema", Some(other)) => Err(RequestError::wrong_type(PATH, "an object", other)),
        _ => {
            let message =
                format!("must be text, json_object, json_schema or structural_tag; got `{}`", shown(name));
            Err(RequestError::wrong_value("response_format.type", message))
        }
    }
}
