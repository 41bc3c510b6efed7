//! Puts the layers on one another and reads the whole. Called by the command.

use super::{ConfigError, Redaction, node::Node, reader::Reader, source::Source};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    ffi::OsString,
    fs::File,
    io::Read,
    marker::PhantomData,
    path::Path,
    sync::Arc,
};

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What the variables of the environment that are settings begin with.
const PREFIX: &str = "SWITCHTOWER__";

/// The layers of a `T`, from the lowest up: call [`file`](Self::file), [`environment`](Self::environment) and
/// [`flag`](Self::flag) in this order.
#[derive(Debug)]
pub struct Layers<T> {
    tree: Node,
    redaction: Redaction,
    config: PhantomData<fn() -> T>,
}

impl<T: Default + Serialize + DeserializeOwned> Layers<T> {
    /// The lowest layer: the defaults.
    ///
    /// # Errors
    /// The default cannot be serialised.
    pub fn new(redaction: Redaction) -> Result<Self, ConfigError> {
        let source = Arc::new(Source::Default);
        let defaults = serde_json::to_value(T::default())
            .map_err(|error| ConfigError::Unprintable(error.to_string()))?;
        let tree = Node::from_json(defaults, &source).unwrap_or_else(|| Node::table(&source));
        Ok(Self { tree, redaction, config: PhantomData })
    }

    /// Puts a TOML file on top.
    ///
    /// # Errors
    /// It cannot be read, is larger than 1 MiB, or is not TOML.
    pub fn file(mut self, path: &Path) -> Result<Self, ConfigError> {
        let text = read(path)?;
        let table: toml::Table =
            toml::from_str(&text).map_err(|error| syntax(path, &text, error.span(), error.message()))?;
        let source = Arc::new(Source::File(path.to_owned()));
        self.tree.merge(Node::from_toml(table.into(), &source));
        Ok(self)
    }

    /// Puts those variables on top that begin with `SWITCHTOWER__`; the others are none of ours.
    ///
    /// # Errors
    /// A variable of ours is not UTF-8, names no path, or is there twice.
    pub fn environment(
        mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut seen = BTreeMap::new();
        for (name, value) in variables {
            let Some((name, path)) = setting_of(&name) else { continue };
            let wrong = |reason| ConfigError::Variable { name: name.clone(), reason };
            if path.split('.').any(str::is_empty) {
                return Err(wrong("name a setting as SWITCHTOWER__SECTION__FIELD"));
            }
            let value = value.into_string().map_err(|_| wrong("its value is not UTF-8"))?;
            match seen.entry(path) {
                Entry::Vacant(place) => drop(place.insert((name, value))),
                Entry::Occupied(_) => return Err(wrong("the same setting is there in another spelling")),
            }
        }
        for (path, (name, value)) in seen {
            let leaf = Node::text(value, &Arc::new(Source::Variable(name)));
            self.tree.merge(Node::at(path.split('.'), leaf));
        }
        Ok(self)
    }

    /// Puts a flag's value on top, if it was given. `path` is the setting, `section.field`.
    #[must_use]
    pub fn flag(mut self, flag: &'static str, path: &'static str, value: Option<String>) -> Self {
        if let Some(value) = value {
            let leaf = Node::text(value, &Arc::new(Source::Flag(flag)));
            self.tree.merge(Node::at(path.split('.'), leaf));
        }
        self
    }

    /// The whole.
    ///
    /// # Errors
    /// A setting that there is not, or a value of the wrong kind: the first one, with its path and source.
    pub fn read(&self) -> Result<T, ConfigError> {
        Ok(T::deserialize(Reader::new(&self.tree, self.redaction))?)
    }
}

/// The variable's name as text, and the setting that it names, `section.field`.
fn setting_of(name: &OsString) -> Option<(String, String)> {
    // A name that is not UTF-8 as a whole may begin as ours do all the same; it then names no setting.
    let name = name.to_string_lossy();
    let path = name.strip_prefix(PREFIX)?;
    Some((name.to_string(), path.split("__").collect::<Vec<_>>().join(".").to_lowercase()))
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(syntax(path, "", None, "a configuration has at most 1 MiB"));
    }
    Ok(text)
}

/// The parser's message without the text around the mistake, which may hold a secret.
fn syntax(path: &Path, text: &str, span: Option<std::ops::Range<usize>>, reason: &str) -> ConfigError {
    let place = span.and_then(|span| text.get(..span.start)).map(|before| {
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!(":{line}:{column}")
    });
    let reason = reason.lines().map(str::trim).collect::<Vec<_>>().join("; ");
    ConfigError::Syntax { path: path.to_owned(), place: place.unwrap_or_default(), reason }
}

#[cfg(test)]
mod tests;
