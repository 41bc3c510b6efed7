//! Reads typed fields out of a JSON object, with errors that name the path. One place for every type and range check
//! of requests. Used by the request parsers beside it only.

use super::RequestError;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// Longest value that an error repeats, in characters.
const SHOWN_CHARS_MAX: usize = 32;

/// The kind of a JSON value, with its article.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A short form of a name that a client sent, for an error.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

/// An object whose known fields are taken out one by one; what is left is unknown to us and kept. A field that is
/// null counts as absent.
pub(super) struct Fields {
    left: Map<String, Value>,
}

impl Fields {
    pub(super) fn new(object: Map<String, Value>) -> Self {
        Self { left: object }
    }

    /// Take a field of any type.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.left.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Look at a field that stays among the unknown ones.
    pub(super) fn peek(&self, name: &str) -> Option<&Value> {
        self.left.get(name).filter(|value| !value.is_null())
    }

    /// What nobody took.
    pub(super) fn rest(self) -> Map<String, Value> {
        self.left
    }

    pub(super) fn string(&mut self, name: &str) -> Result<Option<String>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(RequestError::wrong_type(name, "a string", &other)),
        }
    }

    pub(super) fn boolean(&mut self, name: &str) -> Result<Option<bool>, RequestError> {
        self.take(name).map(|value| boolean(name, &value)).transpose()
    }

    pub(super) fn number(&mut self, name: &str, range: &NumberRange) -> Result<Option<f64>, RequestError> {
        self.take(name).map(|value| range.check(name, &value)).transpose()
    }

    pub(super) fn integer(
        &mut self,
        name: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, RequestError> {
        self.take(name).map(|value| integer(name, &value, range)).transpose()
    }

    /// An integer from `least` to `most`.
    pub(super) fn count(&mut self, name: &str, least: u32, most: u32) -> Result<Option<u32>, RequestError> {
        let value = self.integer(name, i64::from(least)..=i64::from(most))?;
        Ok(value.and_then(|value| u32::try_from(value).ok()))
    }

    pub(super) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(other) => Err(RequestError::wrong_type(name, "an object", &other)),
        }
    }

    /// The `model` field that every request has.
    pub(super) fn model(&mut self) -> Result<String, RequestError> {
        let expected = "the name of a model, as listed by GET /v1/models";
        let model =
            self.string("model")?.ok_or_else(|| RequestError::missing("model".to_owned(), expected))?;
        if crate::card::is_model_name(&model) {
            return Ok(model);
        }
        Err(RequestError::wrong_value(
            "model",
            format!("must be {expected}: 1 to 256 characters, none of them control characters"),
        ))
    }
}

/// A range of numbers, open or closed below.
pub(super) struct NumberRange {
    pub(super) least: f64,
    pub(super) above_least: bool,
    pub(super) most: f64,
}

impl NumberRange {
    pub(super) const fn closed(least: f64, most: f64) -> Self {
        Self { least, above_least: false, most }
    }

    pub(super) const fn above(least: f64, most: f64) -> Self {
        Self { least, above_least: true, most }
    }

    pub(super) fn check(&self, param: &str, value: &Value) -> Result<f64, RequestError> {
        let expected = if self.above_least {
            format!("a number above {} and at most {}", self.least, self.most)
        } else {
            format!("a number from {} to {}", self.least, self.most)
        };
        let number = value.as_f64().ok_or_else(|| RequestError::wrong_type(param, &expected, value))?;
        let inside =
            number <= self.most && number >= self.least && !(self.above_least && number <= self.least);
        if inside {
            return Ok(number);
        }
        Err(RequestError::wrong_value(param, format!("must be {expected}; got {value}")))
    }
}

pub(super) fn boolean(param: &str, value: &Value) -> Result<bool, RequestError> {
    value.as_bool().ok_or_else(|| RequestError::wrong_type(param, "true or false", value))
}

pub(super) fn integer(param: &str, value: &Value, range: RangeInclusive<i64>) -> Result<i64, RequestError> {
    let expected = format!("an integer from {} to {}", range.start(), range.end());
    if !value.is_number() {
        return Err(RequestError::wrong_type(param, &expected, value));
    }
    let number = value.as_i64().filter(|number| range.contains(number));
    number.ok_or_else(|| RequestError::wrong_value(param, format!("must be {expected}; got {value}")))
}

/// A non-empty string from an array's item or an object's field.
pub(super) fn text<'a>(param: &str, value: &'a Value) -> Result<&'a str, RequestError> {
    value.as_str().ok_or_else(|| RequestError::wrong_type(param, "a string", value))
}
