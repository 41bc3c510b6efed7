//! The tree between the layers and the typed one: tables, lists and scalars that know their source.

use super::source::Source;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// A table, a list or a scalar.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) source: Arc<Source>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Table(BTreeMap<String, Node>),
    List(Vec<Node>),
    /// A boolean, a number or a string; never a list or an object.
    Scalar(Value),
    /// From the environment or a flag: means what its reader asks for.
    Text(String),
}

impl Node {
    pub(super) fn table(source: &Arc<Source>) -> Self {
        Self { kind: Kind::Table(BTreeMap::new()), source: Arc::clone(source) }
    }

    pub(super) fn text(text: impl Into<String>, source: &Arc<Source>) -> Self {
        Self { kind: Kind::Text(text.into()), source: Arc::clone(source) }
    }

    /// What a serialised tree says; `null` is what is not set.
    pub(super) fn from_json(value: Value, source: &Arc<Source>) -> Option<Self> {
        let kind = match value {
            Value::Null => return None,
            Value::Object(object) => Kind::Table(
                object
                    .into_iter()
                    .filter_map(|(key, value)| Some((key, Self::from_json(value, source)?)))
                    .collect(),
            ),
            Value::Array(items) => {
                Kind::List(items.into_iter().filter_map(|item| Self::from_json(item, source)).collect())
            }
            scalar => Kind::Scalar(scalar),
        };
        Some(Self { kind, source: Arc::clone(source) })
    }

    pub(super) fn from_toml(value: toml::Value, source: &Arc<Source>) -> Self {
        let kind = match value {
            toml::Value::Table(table) => Kind::Table(
                table.into_iter().map(|(key, value)| (key, Self::from_toml(value, source))).collect(),
            ),
            toml::Value::Array(items) => {
                Kind::List(items.into_iter().map(|item| Self::from_toml(item, source)).collect())
            }
            toml::Value::String(text) => Kind::Scalar(text.into()),
            toml::Value::Integer(number) => Kind::Scalar(number.into()),
            toml::Value::Boolean(flag) => Kind::Scalar(flag.into()),
            // JSON has no infinite numbers, and what is no number: their text is read as one where one is wanted.
            toml::Value::Float(number) => serde_json::Number::from_f64(number)
                .map_or_else(|| Kind::Text(number.to_string()), |number| Kind::Scalar(number.into())),
            toml::Value::Datetime(moment) => Kind::Scalar(moment.to_string().into()),
        };
        Self { kind, source: Arc::clone(source) }
    }

    /// Puts a higher layer on top.
    pub(super) fn merge(&mut self, upper: Self) {
        match (&mut self.kind, upper.kind) {
            (Kind::Table(lower), Kind::Table(table)) => {
                for (key, node) in table {
                    match lower.get_mut(&key) {
                        Some(below) => below.merge(node),
                        None => drop(lower.insert(key, node)),
                    }
                }
            }
            (below, kind) => {
                *below = kind;
                self.source = upper.source;
            }
        }
    }

    /// A tree that holds `leaf` and the tables on the way to it.
    pub(super) fn at<'a>(path: impl DoubleEndedIterator<Item = &'a str>, leaf: Self) -> Self {
        path.rev().fold(leaf, |node, key| {
            let mut table = Self::table(&node.source);
            if let Kind::Table(entries) = &mut table.kind {
                entries.insert(key.to_owned(), node);
            }
            table
        })
    }
}
