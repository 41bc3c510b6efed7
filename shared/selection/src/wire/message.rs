//! Writing and reading messages: version and sizes first, then the generated code, then the domain's own checks.

use super::fields::{Fields, count};
use bytes::Bytes;
use switchtower_proto::{Message, v1};

/// A message that is refused whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// It does not parse, or contradicts itself.
    #[error("not a valid {kind}: {reason}")]
    Malformed {
        /// What it should have been.
        kind: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Its sender is of a release to come.
    #[error(
        "a {kind} of major version {major} is refused: this release reads version {}; update this process",
        v1::MAJOR
    )]
    Version {
        /// What it is.
        kind: &'static str,
        /// Its version.
        major: u64,
    },
    /// More parts than a receiver takes in one message.
    #[error("a {kind} with {count} {parts} is refused: send at most {limit} in one message")]
    TooMany {
        /// What it is.
        kind: &'static str,
        /// Its parts.
        parts: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
}

impl WireError {
    pub(super) fn malformed(kind: &'static str, reason: impl Into<String>) -> Self {
        Self::Malformed { kind, reason: reason.into() }
    }

    /// The reason's name in metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "malformed",
            Self::Version { .. } => "version",
            Self::TooMany { .. } => "too_many_parts",
        }
    }
}

/// Parts of a message that are counted before anything is allocated for them: an empty part takes two bytes on the wire
/// and many more in memory, so its length alone does not bound what a message costs.
#[derive(Clone, Copy)]
pub struct PartLimit {
    pub(super) parts: &'static str,
    /// Field numbers, from the outermost message inwards.
    pub(super) path: &'static [u32],
    pub(super) limit: usize,
}

/// A type of the domain that travels; implemented here alone.
pub trait WireMessage: Sized {
    #[doc(hidden)]
    type Generated: Message + Default;
    #[doc(hidden)]
    const KIND: &'static str;
    #[doc(hidden)]
    const LIMITS: &'static [PartLimit];

    #[doc(hidden)]
    fn to_generated(&self) -> Self::Generated;

    #[doc(hidden)]
    fn from_generated(generated: Self::Generated) -> Result<Self, WireError>;
}

/// Writes a message.
#[must_use]
pub fn encode<T: WireMessage>(message: &T) -> Bytes {
    message.to_generated().encode_to_vec().into()
}

/// Reads a message. Allocates at most a small multiple of the payload's length, whatever it claims. Fields that this
/// release does not know are ignored.
///
/// # Errors
/// Says why the message is refused.
pub fn decode<T: WireMessage>(payload: &[u8]) -> Result<T, WireError> {
    check_version::<T>(payload)?;
    for PartLimit { parts, path, limit } in T::LIMITS {
        let count = count(payload, path).map_err(|reason| WireError::malformed(T::KIND, reason))?;
        if count > *limit {
            return Err(WireError::TooMany { kind: T::KIND, parts, count, limit: *limit });
        }
    }
    let generated = T::Generated::decode(payload);
    T::from_generated(generated.map_err(|error| WireError::malformed(T::KIND, error.to_string()))?)
}

/// Before the rest is looked at: another major version may mean other fields.
fn check_version<T: WireMessage>(payload: &[u8]) -> Result<(), WireError> {
    let mut major = 0;
    for field in Fields::of(payload) {
        let field = field.map_err(|reason| WireError::malformed(T::KIND, reason))?;
        if let (v1::MAJOR_FIELD, Some(number)) = (field.number, field.varint) {
            major = number;
        }
    }
    match major {
        0 => Err(WireError::malformed(T::KIND, "it names no major version (field 1)")),
        major if major == u64::from(v1::MAJOR) => Ok(()),
        major => Err(WireError::Version { kind: T::KIND, major }),
    }
}
