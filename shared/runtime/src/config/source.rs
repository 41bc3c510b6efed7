//! Where a value comes from, so that an error can send its reader there.

use std::{fmt, path::PathBuf};

/// One layer's word for where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The tree's own default.
    Default,
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A flag, dashes included.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => path.display().fmt(f),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}
