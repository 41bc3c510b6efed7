//! One typed configuration tree from four layers: defaults, then a TOML file, then the environment, then flags; each later
//! one wins. Knows no setting: it works on any tree that serde can write and read. Must not read the environment itself;
//! whoever starts the process hands it in. Called by the command.
//!
//! - A section (a table) is merged key by key; everything else, lists too, is replaced whole by the higher layer. So a
//!   tree holds enums that serde tags only inside of lists, where no default stays behind.
//! - `SWITCHTOWER__HTTP__LISTEN` is the setting `http.listen`. Text from the environment and from flags is read as what the
//!   setting is: a list is `a,b` or `["a", "b"]`, and empty text unsets what need not be set.
//! - What no setting is called is refused with its path, whichever layer it comes from; so is a value of the wrong kind,
//!   with the value. Values of secret settings are never shown.

mod error;
mod layers;
pub mod milliseconds;
mod node;
mod reader;
mod redaction;
mod source;
mod table;

pub use error::ConfigError;
pub use layers::Layers;
pub use redaction::Redaction;
