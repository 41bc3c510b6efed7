//! Python's text forms of values, which templates were written against: `str()` and `repr()` for output, `json.dumps`
//! for `tojson`, and string methods that minijinja's Python layer lacks. Pure; used by `environment` only.

use minijinja::{
    Error, ErrorKind, Value,
    value::{ValueKind, from_args},
};
use std::fmt::Write as _;

/// Name of the method that stands for `[::-1]`; no template can have one of this name.
pub(super) const REVERSED: &str = "switchtower_reversed";

/// Widest indent that a template may ask for, in spaces.
const INDENT_MAX: usize = 64;

/// `str(value)`, and nothing for an undefined value.
pub(super) fn display(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_undefined() => String::new(),
        None => repr(value),
    }
}

/// `repr(value)`.
fn repr(value: &Value) -> String {
    let mut out = String::new();
    write_repr(&mut out, value);
    out
}

fn write_repr(out: &mut String, value: &Value) {
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => write_string_repr(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            write_items(out, ('[', ']'), value, |out, item| write_repr(out, &item));
        }
        ValueKind::Map => write_items(out, ('{', '}'), value, |out, key| {
            write_repr(out, &key);
            out.push_str(": ");
            write_repr(out, &value.get_item(&key).unwrap_or_default());
        }),
        _ => {
            let _ = write!(out, "{value}");
        }
    }
}

fn write_items(out: &mut String, brackets: (char, char), value: &Value, write: impl Fn(&mut String, Value)) {
    out.push(brackets.0);
    for (index, item) in value.try_iter().into_iter().flatten().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write(out, item);
    }
    out.push(brackets.1);
}

fn write_string_repr(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if character == quote => {
                out.push('\\');
                out.push(quote);
            }
            '\0'..='\x1f' | '\x7f'..='\u{a0}' | '\u{ad}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push(quote);
}

/// A number as Python prints it: floats keep a `.0`, and have an exponent from 1e16 up and below 1e-4.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(float) = f64::try_from(value.clone()) else {
        return value.to_string();
    };
    if float.is_nan() {
        return "nan".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // Rust prints the shortest digits that round-trip, as Python does.
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    match exponent {
        _ if float == 0.0 => format!("{float:.1}"),
        -4..16 if float.fract() == 0.0 => format!("{float:.1}"),
        -4..16 => format!("{float}"),
        16.. => format!("{digits}e+{exponent:02}"),
        _ => format!("{digits}e-{:02}", -exponent),
    }
}

/// How `json.dumps` writes.
pub(super) struct JsonStyle {
    indent: Option<String>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    pub(super) ascii_only: bool,
    pub(super) sort_keys: bool,
}

impl JsonStyle {
    /// Python's defaults for `indent`: a number of spaces, a string, or nothing.
    pub(super) fn new(indent: Option<&Value>) -> Result<Self, Error> {
        let indent = match indent {
            Some(value) if !value.is_none() && !value.is_undefined() => Some(indent_text(value)?),
            _ => None,
        };
        // With an indent the line break separates the items.
        let item_separator = if indent.is_some() { "," } else { ", " }.to_owned();
        Ok(Self {
            indent,
            item_separator,
            key_separator: ": ".to_owned(),
            ascii_only: false,
            sort_keys: false,
        })
    }

    /// `json.dumps(value)` in this style.
    pub(super) fn dump(&self, value: &Value) -> Result<String, Error> {
        let mut out = String::new();
        self.write(&mut out, value, 0)?;
        Ok(out)
    }

    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => {
                let number = number(value);
                out.push_str(match number.as_str() {
                    "nan" => "NaN",
                    "inf" => "Infinity",
                    "-inf" => "-Infinity",
                    finite => finite,
                });
            }
            ValueKind::String => self.write_string(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.write_array(out, value, depth)?,
            ValueKind::Map => self.write_object(out, value, depth)?,
            kind => {
                let message = format!("{kind} is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn write_array(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.separate(out, empty, depth + 1);
            self.write(out, &item, depth + 1)?;
            empty = false;
        }
        self.close(out, empty, depth);
        out.push(']');
        Ok(())
    }

    fn write_object(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        out.push('{');
        for (index, key) in keys.iter().enumerate() {
            self.separate(out, index == 0, depth + 1);
            self.write_key(out, key)?;
            out.push_str(&self.key_separator);
            self.write(out, &value.get_item(key)?, depth + 1)?;
        }
        self.close(out, keys.is_empty(), depth);
        out.push('}');
        Ok(())
    }

    /// JSON has string keys only; Python writes the others as their JSON text.
    fn write_key(&self, out: &mut String, key: &Value) -> Result<(), Error> {
        if let Some(text) = key.as_str() {
            self.write_string(out, text);
            return Ok(());
        }
        let mut text = String::new();
        self.write(&mut text, key, 0)?;
        self.write_string(out, &text);
        Ok(())
    }

    fn separate(&self, out: &mut String, first: bool, depth: usize) {
        if !first {
            out.push_str(&self.item_separator);
        }
        self.line(out, depth);
    }

    fn close(&self, out: &mut String, empty: bool, depth: usize) {
        if !empty {
            self.line(out, depth);
        }
    }

    fn line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn write_string(&self, out: &mut String, text: &str) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                '\0'..='\x1f' => write_escapes(out, character),
                '\x7f'.. if self.ascii_only => write_escapes(out, character),
                _ => out.push(character),
            }
        }
        out.push('"');
    }
}

/// `\uXXXX`, twice for what UTF-16 writes as a pair.
fn write_escapes(out: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        let _ = write!(out, "\\u{unit:04x}");
    }
}

fn indent_text(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.chars().take(INDENT_MAX).collect());
    }
    let width = i64::try_from(value.clone())?.clamp(0, INDENT_MAX as i64);
    Ok(" ".repeat(usize::try_from(width).unwrap_or(0)))
}

/// Methods of `str` that the library lacks or has without all arguments; `None` for every other.
pub(super) fn string_method(value: &Value, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    let text = value.as_str()?;
    Some(match method {
        "removeprefix" => {
            affix(args).map(|affix| Value::from(text.strip_prefix(affix.as_str()).unwrap_or(text)))
        }
        "removesuffix" => {
            affix(args).map(|affix| Value::from(text.strip_suffix(affix.as_str()).unwrap_or(text)))
        }
        "partition" => affix(args).map(|separator| partition(text, text.find(&separator), &separator)),
        "rpartition" => affix(args).map(|separator| match text.rfind(&separator) {
            Some(at) => partition(text, Some(at), &separator),
            None => strings(&["", "", text]),
        }),
        "index" => affix(args).and_then(|part| match text.find(&part) {
            Some(at) => Ok(Value::from(text[..at].chars().count())),
            None => Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
        }),
        "rsplit" => rsplit(text, args),
        _ => return None,
    })
}

fn affix(args: &[Value]) -> Result<String, Error> {
    from_args::<(String,)>(args).map(|(affix,)| affix)
}

fn partition(text: &str, at: Option<usize>, separator: &str) -> Value {
    let parts = at.and_then(|at| Some((text.get(..at)?, text.get(at + separator.len()..)?)));
    strings(&parts.map_or([text, "", ""], |(before, after)| [before, separator, after]))
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, most): (Option<String>, Option<i64>) = from_args(args)?;
    let pieces = usize::try_from(most.unwrap_or(-1)).map_or(usize::MAX, |most| most.saturating_add(1));
    let mut parts: Vec<&str> = match &separator {
        Some(separator) => text.rsplitn(pieces, separator.as_str()).collect(),
        None => text.trim_end().rsplitn(pieces, char::is_whitespace).collect(),
    };
    parts.reverse();
    Ok(strings(&parts))
}

fn strings(parts: &[&str]) -> Value {
    parts.iter().map(|part| Value::from(*part)).collect()
}
