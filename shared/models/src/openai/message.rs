//! One message of a conversation. Kept as the object that came, because templates read whatever is in it; checked on
//! the way in, so that what follows can rely on its shape.

use super::{
    RequestError,
    fields::{kind, shown, text},
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;

/// Most messages of one request.
pub const MESSAGES_MAX: usize = 10_000;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    System,
    /// Instructions, in newer APIs.
    Developer,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
    /// The result of a function call, in older APIs.
    Function,
}

impl Role {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "system" => Self::System,
            "developer" => Self::Developer,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" => Self::Tool,
            "function" => Self::Function,
            _ => return None,
        })
    }
}

/// A message whose shape has been checked.
#[derive(Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Message {
    object: Map<String, Value>,
    #[serde(skip)]
    role: Role,
}

impl Message {
    /// Who speaks.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The message as it came.
    #[must_use]
    pub fn as_object(&self) -> &Map<String, Value> {
        &self.object
    }

    /// The content's parts, where it is a list.
    #[must_use]
    pub fn parts(&self) -> Option<&[Value]> {
        Some(self.object.get("content")?.as_array()?.as_slice())
    }

    fn parse(path: &str, value: Value) -> Result<Self, RequestError> {
        let Value::Object(object) = value else {
            return Err(RequestError::wrong_type(path, "an object with `role` and `content`", &value));
        };
        let role = parse_role(path, object.get("role"))?;
        let message = Self { object, role };
        message.check_content(path)?;
        message.check_names(path)?;
        super::tools::check_calls(path, &message.object, role)?;
        Ok(message)
    }

    fn check_content(&self, path: &str) -> Result<(), RequestError> {
        let path = format!("{path}.content");
        match self.object.get("content") {
            Some(Value::String(_)) => Ok(()),
            Some(Value::Array(parts)) => check_parts(&path, parts),
            None | Some(Value::Null) if self.may_be_silent() => Ok(()),
            None | Some(Value::Null) => Err(RequestError::missing(path, "a string or an array of parts")),
            Some(other) => Err(RequestError::wrong_type(&path, "a string or an array of parts", other)),
        }
    }

    /// Only an assistant that does something else instead may say nothing.
    fn may_be_silent(&self) -> bool {
        let instead = ["tool_calls", "function_call", "refusal", "reasoning_content", "reasoning", "audio"];
        let does = |name: &str| self.object.get(name).is_some_and(|value| !value.is_null());
        self.role == Role::Assistant && instead.iter().any(|name| does(name))
    }

    fn check_names(&self, path: &str) -> Result<(), RequestError> {
        for name in ["name", "tool_call_id", "reasoning_content", "refusal"] {
            let value = self.object.get(name).unwrap_or(&Value::Null);
            if !value.is_null() {
                text(&format!("{path}.{name}"), value)?;
            }
        }
        let required = match self.role {
            Role::Tool => "tool_call_id",
            Role::Function => "name",
            _ => return Ok(()),
        };
        match self.object.get(required) {
            None | Some(Value::Null) => {
                Err(RequestError::missing(format!("{path}.{required}"), "the call that this answers"))
            }
            Some(_) => Ok(()),
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("role", &self.role).finish_non_exhaustive()
    }
}

/// The `messages` of a request.
pub(super) fn parse_messages(value: Option<Value>) -> Result<Vec<Message>, RequestError> {
    let messages = match value {
        None => {
            return Err(RequestError::missing("messages".to_owned(), "an array of messages"));
        }
        Some(Value::Array(messages)) => messages,
        Some(other) => {
            return Err(RequestError::wrong_type("messages", "an array of messages", &other));
        }
    };
    if messages.is_empty() || messages.len() > MESSAGES_MAX {
        let message = format!("must hold 1 to {MESSAGES_MAX} messages; got {}", messages.len());
        return Err(RequestError::wrong_value("messages", message));
    }
    messages
        .into_iter()
        .enumerate()
        .map(|(index, value)| Message::parse(&format!("messages[{index}]"), value))
        .collect()
}

fn parse_role(path: &str, value: Option<&Value>) -> Result<Role, RequestError> {
    const ROLES: &str = "one of system, developer, user, assistant, tool, function";
    let path = format!("{path}.role");
    match value {
        None | Some(Value::Null) => Err(RequestError::missing(path, ROLES)),
        Some(Value::String(name)) => Role::parse(name).ok_or_else(|| {
            RequestError::wrong_value(&path, format!("must be {ROLES}; got `{}`", shown(name)))
        }),
        Some(other) => Err(RequestError::wrong_type(&path, ROLES, other)),
    }
}

fn check_parts(path: &str, parts: &[Value]) -> Result<(), RequestError> {
    if parts.is_empty() {
        return Err(RequestError::wrong_value(path, "must hold at least one part, or be a string"));
    }
    parts.iter().enumerate().try_for_each(|(index, part)| check_part(&format!("{path}[{index}]"), part))
}

/// Each type of part and the field that holds it, with whether that is text. Media pass through: the model's template
/// decides what stands for them.
const PARTS: [(&str, &str, bool); 8] = [
    ("text", "text", true),
    ("refusal", "refusal", true),
    ("thinking", "thinking", true),
    ("image_url", "image_url", false),
    ("video_url", "video_url", false),
    ("audio_url", "audio_url", false),
    ("input_audio", "input_audio", false),
    ("file", "file", false),
];

fn check_part(path: &str, part: &Value) -> Result<(), RequestError> {
    let Value::Object(object) = part else {
        return Err(RequestError::wrong_type(path, "an object with `type`", part));
    };
    let names = PARTS.map(|(name, ..)| name).join(", ");
    let type_path = format!("{path}.type");
    let name = match object.get("type") {
        None | Some(Value::Null) => return Err(RequestError::missing(type_path, &format!("one of {names}"))),
        Some(value) => text(&type_path, value)?,
    };
    let Some((_, field, is_text)) = PARTS.iter().find(|(known, ..)| *known == name) else {
        let message = format!("must be one of {names}; got `{}`", shown(name));
        return Err(RequestError::wrong_value(&type_path, message));
    };
    let field_path = format!("{path}.{field}");
    match object.get(*field) {
        None | Some(Value::Null) => {
            Err(RequestError::missing(field_path, &format!("what a part of type {name} holds")))
        }
        Some(Value::String(_)) => Ok(()),
        Some(Value::Object(_)) if !is_text => Ok(()),
        Some(other) => {
            let expected = if *is_text { "a string" } else { "an object" };
            Err(RequestError::invalid(
                field_path,
                "invalid_type",
                format!("must be {expected}, not {}", kind(other)),
            ))
        }
    }
}
