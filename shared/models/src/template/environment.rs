//! The Jinja environment as `transformers` builds it: block trimming, loop controls, `tojson`, `raise_exception`,
//! `strftime_now`, Python's methods and Python's way of printing values. Used by [`super::ChatTemplate`] only.

use super::{
    Clock,
    python::{self, JsonStyle},
};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, State, Value, filters,
    value::{Kwargs, ValueKind},
};
use minijinja_contrib::pycompat;

/// Marks an error as the template's own decision.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct RaisedByTemplate(pub(super) String);

/// An environment without templates.
pub(super) fn build(clock: Clock) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_debug(false);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(call_method);
    environment.set_formatter(|out, _state, value| Ok(out.write_str(&python::display(value))?));
    environment.add_filter("tojson", to_json);
    add_text_filters(&mut environment);
    environment.add_test("sequence", |value: &Value| is_sized(value));
    environment.add_test("iterable", |value: &Value| is_sized(value) || value.kind() == ValueKind::Iterable);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", move |format: &str| {
        clock.format(format).map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    });
    environment
}

/// Filters that turn their value into text first, the way Python does, and those that count an undefined one as empty.
fn add_text_filters(environment: &mut Environment<'_>) {
    environment.add_filter("string", python::display);
    environment.add_filter("trim", |value: &Value, characters: Option<&str>| {
        let text = python::display(value);
        match characters {
            Some(set) => text.trim_matches(|character| set.contains(character)).to_owned(),
            None => text.trim().to_owned(),
        }
    });
    environment.add_filter("upper", |value: &Value| python::display(value).to_uppercase());
    environment.add_filter("lower", |value: &Value| python::display(value).to_lowercase());
    environment.add_filter("replace", |value: &Value, from: &Value, to: &Value, count: Option<usize>| {
        let (text, from, to) = (python::display(value), python::display(from), python::display(to));
        text.replacen(&from, &to, count.unwrap_or(usize::MAX))
    });
    environment.add_filter("join", join);
    for name in ["length", "count"] {
        environment.add_filter(name, |value: &Value| match value.is_undefined() {
            true => Ok(0),
            false => filters::length(value),
        });
    }
}

/// Items of a list, of a dict (its keys) or of a string, as text.
fn join(value: &Value, separator: Option<&str>) -> Result<String, Error> {
    if value.is_none() {
        return Err(Error::new(ErrorKind::InvalidOperation, "cannot join the items of none"));
    }
    let texts: Vec<String> = match value.as_str() {
        Some(text) => text.chars().map(String::from).collect(),
        None => value.try_iter()?.map(|item| python::display(&item)).collect(),
    };
    Ok(texts.join(separator.unwrap_or_default()))
}

/// Python's strings and dicts have a length and items, and Jinja's undefined is empty, so all are called sequences.
fn is_sized(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = python::display(message);
    Err(Error::new(ErrorKind::InvalidOperation, "raised by the template")
        .with_source(RaisedByTemplate(message)))
}

/// `json.dumps` with the arguments that `transformers` passes on.
fn to_json(value: &Value, indent: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let indent = match options.get::<Option<Value>>("indent")? {
        Some(named) => Some(named),
        None => indent,
    };
    let mut style = JsonStyle::new(indent.as_ref())?;
    style.ascii_only = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    style.sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    if let Some(separators) = options.get::<Option<Vec<String>>>("separators")?
        && let [item, key] = separators.as_slice()
    {
        style.item_separator.clone_from(item);
        style.key_separator.clone_from(key);
    }
    options.assert_all_used()?;
    // Marked safe, as Python's filter does not escape.
    style.dump(value).map(Value::from_safe_string)
}

/// Python's methods: the library's, and those that it lacks.
fn call_method(state: &State<'_, '_>, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if method == python::REVERSED {
        return value.reverse();
    }
    match python::string_method(value, method, args) {
        Some(result) => result,
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// The template as the engine can run it:
///
/// - `{% generation %}` marks the assistant's words for training and changes no text. The engine has no custom tags,
///   so each becomes a block that is always entered, with the same whitespace control.
/// - `[::-1]` becomes a call of our own method, since the engine's slicing panics on empty lists when it goes backwards.
pub(super) fn adapted(source: &str) -> String {
    let mut output = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((start, close)) = next_tag(rest) {
        let Some(length) = rest[start..].find(close) else {
            break;
        };
        output.push_str(&rest[..start]);
        output.push_str(&adapted_tag(&rest[start..start + length]));
        output.push_str(close);
        rest = &rest[start + length + close.len()..];
    }
    output.push_str(rest);
    output
}

/// Where the next statement, expression or comment begins, and what ends it.
fn next_tag(text: &str) -> Option<(usize, &'static str)> {
    let starts = [("{%", "%}"), ("{{", "}}"), ("{#", "#}")];
    starts.iter().filter_map(|(open, close)| Some((text.find(open)?, *close))).min()
}

fn adapted_tag(tag: &str) -> String {
    match tag.trim_matches(|character: char| character.is_whitespace() || "{%+-".contains(character)) {
        "generation" => tag.replace("generation", " if true "),
        "endgeneration" => tag.replace("endgeneration", " endif "),
        _ => tag.replace("[::-1]", &format!(".{}()", python::REVERSED)),
    }
}
