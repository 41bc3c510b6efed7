//! Reads a node as the type that is asked for. Text becomes what is wanted; everything that goes wrong is said with path,
//! source and value.

use super::{
    Redaction,
    error::{Mismatch, shown},
    node::{Kind, Node},
    source::Source,
    table::{ListAccess, TableAccess},
};
use serde::{
    Deserializer,
    de::{Error as _, IntoDeserializer, Visitor, value::MapAccessDeserializer},
    forward_to_deserialize_any,
};
use serde_json::Value;
use std::{fmt, str::FromStr, sync::Arc};

/// Where a node stands in its tree.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// The name of the setting: the last key on the path.
    fn key(&self) -> &str {
        match self {
            Self::Root => "",
            Self::Key(_, key) => key,
            Self::Index(parent, _) => parent.key(),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            // A key may be anything that a file holds: keep it on one line.
            Self::Key(Path::Root, key) => key.escape_debug().fmt(f),
            Self::Key(parent, key) => write!(f, "{parent}.{}", key.escape_debug()),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A node on its place.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) node: &'a Node,
    pub(super) path: Path<'a>,
    pub(super) redaction: Redaction,
}

impl<'a> Reader<'a> {
    pub(super) fn new(node: &'a Node, redaction: Redaction) -> Self {
        Self { node, path: Path::Root, redaction }
    }

    pub(super) fn located<T>(self, result: Result<T, Mismatch>) -> Result<T, Mismatch> {
        result.map_err(|mismatch| mismatch.at(self.path, &self.node.source, || self.shown()))
    }

    /// The value, where it is short enough to be shown.
    fn shown(self) -> Option<String> {
        let text = match &self.node.kind {
            Kind::Table(_) | Kind::List(_) => return None,
            Kind::Scalar(Value::String(text)) | Kind::Text(text) => text.clone(),
            Kind::Scalar(scalar) => scalar.to_string(),
        };
        Some(shown(&text, self.path.key(), self.redaction))
    }

    fn any<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.node.kind {
            Kind::Table(_) => visitor.visit_map(TableAccess::new(self)),
            Kind::List(items) => visitor.visit_seq(ListAccess::new(self, items)),
            Kind::Text(text) => visitor.visit_str(text),
            Kind::Scalar(Value::Bool(flag)) => visitor.visit_bool(*flag),
            Kind::Scalar(Value::String(text)) => visitor.visit_str(text),
            Kind::Scalar(Value::Number(number)) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (None, Some(number)) => visitor.visit_i64(number),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Kind::Scalar(_) => visitor.visit_unit(),
        }
    }

    /// Reads text as a `T`; everything else as it is.
    fn parsed<'de, V, T>(
        self,
        visitor: V,
        wanted: &str,
        visit: impl FnOnce(V, T) -> Result<V::Value, Mismatch>,
    ) -> Result<V::Value, Mismatch>
    where
        V: Visitor<'de>,
        T: FromStr,
    {
        self.located(match &self.node.kind {
            Kind::Text(text) => match text.trim().parse() {
                Ok(value) => visit(visitor, value),
                Err(_) => Err(Mismatch::wrong(wanted)),
            },
            _ => self.any(visitor),
        })
    }

    /// `a,b`, or a list as TOML writes it.
    fn list<'de, V: Visitor<'de>>(self, text: &str, visitor: V) -> Result<V::Value, Mismatch> {
        let items = split(text, &self.node.source)?;
        visitor.visit_seq(ListAccess::new(self, &items))
    }
}

fn split(text: &str, source: &Arc<Source>) -> Result<Vec<Node>, Mismatch> {
    let text = text.trim();
    if !text.starts_with('[') {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        return Ok(items.map(|item| Node::text(item, source)).collect());
    }
    let read: Result<toml::Table, _> = toml::from_str(&format!("list = {text}"));
    let list = read.ok().and_then(|mut table| table.remove("list"));
    match list.map(|list| Node::from_toml(list, source).kind) {
        Some(Kind::List(items)) => Ok(items),
        _ => Err(Mismatch::wrong("give a list as `a,b` or as TOML writes it, `[\"a\", \"b\"]`")),
    }
}

const WHOLE: &str = "it must be a whole number";
const NOT_NEGATIVE: &str = "it must be a whole number that is not negative";

macro_rules! numbers {
    ($($method:ident => $type:ty, $visit:ident, $wanted:expr;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
            self.parsed(visitor, $wanted, |visitor, value: $type| visitor.$visit(value))
        })*
    };
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.located(self.any(visitor))
    }

    numbers! {
        deserialize_bool => bool, visit_bool, "it must be true or false";
        deserialize_i8 => i64, visit_i64, WHOLE;
        deserialize_i16 => i64, visit_i64, WHOLE;
        deserialize_i32 => i64, visit_i64, WHOLE;
        deserialize_i64 => i64, visit_i64, WHOLE;
        deserialize_u8 => u64, visit_u64, NOT_NEGATIVE;
        deserialize_u16 => u64, visit_u64, NOT_NEGATIVE;
        deserialize_u32 => u64, visit_u64, NOT_NEGATIVE;
        deserialize_u64 => u64, visit_u64, NOT_NEGATIVE;
        deserialize_f32 => f64, visit_f64, "it must be a number";
        deserialize_f64 => f64, visit_f64, "it must be a number";
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.node.kind {
            Kind::Text(text) if text.is_empty() => self.located(visitor.visit_none()),
            _ => self.located(visitor.visit_some(self)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.located(match &self.node.kind {
            Kind::Text(text) => self.list(text, visitor),
            _ => self.any(visitor),
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Mismatch> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        self.located(visitor.visit_newtype_struct(self))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        self.located(match &self.node.kind {
            Kind::Text(text) | Kind::Scalar(Value::String(text)) => {
                visitor.visit_enum(text.as_str().into_deserializer())
            }
            Kind::Table(_) => visitor.visit_enum(MapAccessDeserializer::new(TableAccess::new(self))),
            _ => Err(Mismatch::custom("it must be a name")),
        })
    }

    /// Types that would overlook what they do not know ask for this: here it is an error as everywhere.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Mismatch> {
        self.located(Err(Mismatch::unknown(&[])))
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct tuple_struct map struct identifier
    }
}
