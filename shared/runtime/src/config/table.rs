//! The inside of tables and lists, one entry after the other. Called by `reader` alone.

use super::{
    error::Mismatch,
    node::{Kind, Node},
    reader::{Path, Reader},
};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, value::StrDeserializer};
use std::collections::btree_map;

/// A table's entries.
pub(super) struct TableAccess<'a> {
    table: Reader<'a>,
    entries: Option<btree_map::Iter<'a, String, Node>>,
    value: Option<(&'a str, &'a Node)>,
}

impl<'a> TableAccess<'a> {
    /// The entries of `table`; none if it is no table.
    pub(super) fn new(table: Reader<'a>) -> Self {
        let entries = match &table.node.kind {
            Kind::Table(entries) => Some(entries.iter()),
            _ => None,
        };
        Self { table, entries, value: None }
    }
}

impl<'de> MapAccess<'de> for TableAccess<'_> {
    type Error = Mismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mismatch> {
        let Some((key, node)) = self.entries.as_mut().and_then(Iterator::next) else {
            return Ok(None);
        };
        self.value = Some((key, node));
        let path = Path::Key(&self.table.path, key);
        let key = seed.deserialize(StrDeserializer::<Mismatch>::new(key));
        key.map(Some).map_err(|mismatch| mismatch.at(path, &node.source, || None))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mismatch> {
        let (key, node) = self.value.take().ok_or_else(|| Mismatch::wrong("a value without its key"))?;
        let path = Path::Key(&self.table.path, key);
        let value = Reader { node, path, redaction: self.table.redaction };
        value.located(seed.deserialize(value))
    }
}

/// A list's items.
pub(super) struct ListAccess<'a> {
    list: Reader<'a>,
    items: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
}

impl<'a> ListAccess<'a> {
    /// `items` as what stands at `list`.
    pub(super) fn new(list: Reader<'a>, items: &'a [Node]) -> Self {
        Self { list, items: items.iter().enumerate() }
    }
}

impl<'de> SeqAccess<'de> for ListAccess<'_> {
    type Error = Mismatch;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mismatch> {
        let Some((index, node)) = self.items.next() else {
            return Ok(None);
        };
        let path = Path::Index(&self.list.path, index);
        // What a type says after it has read the item whole still is about this item.
        let item = Reader { node, path, redaction: self.list.redaction };
        item.located(seed.deserialize(item)).map(Some)
    }
}
