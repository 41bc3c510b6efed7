//! Bytes to a JSON object, refusing what parsers disagree about: keys given twice. (A router that reads the first and
//! an engine that reads the last would see two requests.) Nesting is bounded by the parser at 128.

use super::RequestError;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, error::Category};
use std::fmt;

/// Parse a body that must be one JSON object.
pub(super) fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>, RequestError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let message = format!("the body is not UTF-8 (byte {}): send JSON in UTF-8", error.valid_up_to());
        RequestError::invalid(None, "invalid_json", message)
    })?;
    if text.starts_with('\u{feff}') {
        let message = "the body begins with a byte order mark: send JSON without one";
        return Err(RequestError::invalid(None, "invalid_json", message));
    }
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut parser).and_then(|value| parser.end().map(|()| value));
    match value.map_err(|error| describe(&error))? {
        Value::Object(object) => Ok(object),
        other => {
            let message = format!("the body must be a JSON object, not {}", super::fields::kind(&other));
            Err(RequestError::invalid(None, "invalid_json", message))
        }
    }
}

fn describe(error: &serde_json::Error) -> RequestError {
    let text = error.to_string();
    if error.classify() == Category::Data
        && let Some((key, _)) = text.split_once(DUPLICATE)
    {
        let message = format!("given twice (line {} column {}): give it once", error.line(), error.column());
        return RequestError::invalid(key.to_owned(), "duplicate_field", message);
    }
    RequestError::invalid(None, "invalid_json", format!("the body is not valid JSON: {text}"))
}

/// Between the key and the position in the message of a duplicate.
const DUPLICATE: &str = "\u{1}is a duplicate";

/// Longest key that an error repeats, in characters.
const KEY_CHARS_MAX: usize = 64;

#[derive(Clone, Copy)]
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                let shown: String = key.chars().take(KEY_CHARS_MAX).collect();
                return Err(A::Error::custom(format!("{shown}{DUPLICATE}")));
            }
            let value = entries.next_value_seed(self)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}
