//! Tools that a request offers, the choice among them, and the calls that messages carry.

use super::{
    Message, RequestError, Role,
    fields::{Fields, shown, text},
};
use serde_json::{Map, Value};

/// Most tools of one request.
pub const TOOLS_MAX: usize = 1024;
/// Longest name of a function, in characters.
const NAME_CHARS_MAX: usize = 128;

/// The `tools` of a request; none is an empty list.
pub(super) fn parse_tools(fields: &mut Fields) -> Result<Vec<Value>, RequestError> {
    let tools = match fields.take("tools") {
        None => return Ok(Vec::new()),
        Some(Value::Array(tools)) => tools,
        Some(other) => return Err(RequestError::wrong_type("tools", "an array of tools", &other)),
    };
    if tools.len() > TOOLS_MAX {
        let message = format!("must hold at most {TOOLS_MAX} tools; got {}", tools.len());
        return Err(RequestError::wrong_value("tools", message));
    }
    for (index, tool) in tools.iter().enumerate() {
        check_tool(&format!("tools[{index}]"), tool)?;
    }
    Ok(tools)
}

fn check_tool(path: &str, tool: &Value) -> Result<(), RequestError> {
    let object = object(path, tool)?;
    is_function(path, object)?;
    let path = format!("{path}.function");
    let function = member(&path, object, "function", "the function's `name` and `parameters`")?;
    let function = self::object(&path, function)?;
    check_name(&path, function)?;
    for (name, expected) in [("description", "a string"), ("parameters", "a JSON schema (an object)")] {
        let right = match function.get(name) {
            None | Some(Value::Null) => true,
            Some(Value::String(_)) => name == "description",
            Some(Value::Object(_)) => name == "parameters",
            Some(_) => false,
        };
        if !right {
            let found = function.get(name).unwrap_or(&Value::Null);
            return Err(RequestError::wrong_type(&format!("{path}.{name}"), expected, found));
        }
    }
    Ok(())
}

/// `tool_choice`: a word, or one of the offered functions by name.
pub(super) fn parse_choice(fields: &mut Fields, tools: &[Value]) -> Result<Option<Value>, RequestError> {
    const PATH: &str = "tool_choice";
    const EXPECTED: &str = "none, auto, required or {\"type\": \"function\", \"function\": {\"name\": …}}";
    let Some(choice) = fields.take(PATH) else {
        return Ok(None);
    };
    match &choice {
        Value::String(word) if word == "none" => {}
        Value::String(word) if word == "auto" || word == "required" => {
            if tools.is_empty() {
                return Err(RequestError::wrong_value(
                    PATH,
                    format!("is `{word}` but the request has no `tools`: add them"),
                ));
            }
        }
        Value::String(word) => {
            return Err(RequestError::wrong_value(
                PATH,
                format!("must be {EXPECTED}; got `{}`", shown(word)),
            ));
        }
        Value::Object(object) => check_named_choice(object, tools)?,
        other => return Err(RequestError::wrong_type(PATH, EXPECTED, other)),
    }
    Ok(Some(choice))
}

fn check_named_choice(choice: &Map<String, Value>, tools: &[Value]) -> Result<(), RequestError> {
    is_function("tool_choice", choice)?;
    let path = "tool_choice.function";
    let function = object(path, member(path, choice, "function", "the function's `name`")?)?;
    let name = check_name(path, function)?;
    let offered = |tool: &Value| tool.pointer("/function/name").and_then(Value::as_str) == Some(name);
    if tools.iter().any(offered) {
        return Ok(());
    }
    let message =
        format!("names `{}`, which is not among `tools`: add it there or choose another", shown(name));
    Err(RequestError::wrong_value("tool_choice.function.name", message))
}

/// The calls in a message: only an assistant's, each with a name and arguments.
pub(super) fn check_calls(path: &str, message: &Map<String, Value>, role: Role) -> Result<(), RequestError> {
    let path = format!("{path}.tool_calls");
    let calls = match message.get("tool_calls") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(calls)) => calls,
        Some(other) => return Err(RequestError::wrong_type(&path, "an array of tool calls", other)),
    };
    if role != Role::Assistant {
        return Err(RequestError::wrong_value(
            &path,
            "belongs to messages of role assistant: remove it here",
        ));
    }
    calls.iter().enumerate().try_for_each(|(index, call)| check_call(&format!("{path}[{index}]"), call))
}

fn check_call(path: &str, call: &Value) -> Result<(), RequestError> {
    let call = object(path, call)?;
    if let Some(id) = call.get("id").filter(|id| !id.is_null()) {
        text(&format!("{path}.id"), id)?;
    }
    let path = format!("{path}.function");
    let function = object(&path, member(&path, call, "function", "the function's `name` and `arguments`")?)?;
    check_name(&path, function)?;
    match function.get("arguments") {
        None | Some(Value::Null | Value::String(_) | Value::Object(_)) => Ok(()),
        Some(other) => {
            Err(RequestError::wrong_type(&format!("{path}.arguments"), "JSON text or an object", other))
        }
    }
}

/// The messages as templates get them: the JSON text of a call's arguments replaced by what it says. Text that is no
/// JSON stays text.
pub(crate) fn with_parsed_arguments(message: &Message) -> Map<String, Value> {
    let mut object = message.as_object().clone();
    let calls = object.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        let Some(arguments) = call.pointer_mut("/function/arguments") else {
            continue;
        };
        let parsed = match arguments.as_str() {
            Some("") => Some(Value::Object(Map::new())),
            Some(text) => serde_json::from_str(text).ok(),
            None => None,
        };
        if let Some(parsed) = parsed {
            *arguments = parsed;
        }
    }
    object
}

fn check_name<'a>(path: &str, function: &'a Map<String, Value>) -> Result<&'a str, RequestError> {
    let path = format!("{path}.name");
    let expected = "the function's name";
    let value = function.get("name").filter(|value| !value.is_null());
    let name = text(&path, value.ok_or_else(|| RequestError::missing(path.clone(), expected))?)?;
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX {
        return Err(RequestError::wrong_value(&path, format!("must have 1 to {NAME_CHARS_MAX} characters")));
    }
    Ok(name)
}

fn is_function(path: &str, object: &Map<String, Value>) -> Result<(), RequestError> {
    let path = format!("{path}.type");
    match object.get("type") {
        Some(Value::String(name)) if name == "function" => Ok(()),
        Some(Value::String(name)) => {
            Err(RequestError::wrong_value(&path, format!("must be `function`; got `{}`", shown(name))))
        }
        None | Some(Value::Null) => Err(RequestError::missing(path, "`function`")),
        Some(other) => Err(RequestError::wrong_type(&path, "`function`", other)),
    }
}

fn member<'a>(
    path: &str,
    object: &'a Map<String, Value>,
    name: &str,
    expected: &str,
) -> Result<&'a Value, RequestError> {
    let value = object.get(name).filter(|value| !value.is_null());
    value.ok_or_else(|| RequestError::missing(path.to_owned(), expected))
}

fn object<'a>(path: &str, value: &'a Value) -> Result<&'a Map<String, Value>, RequestError> {
    value.as_object().ok_or_else(|| RequestError::wrong_type(path, "an object", value))
}
