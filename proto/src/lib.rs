//! The messages on the bus: versioned protobuf packages, and the types generated from them.
//!
//! Wire types only, and the only user of `prost`: the rooms that send and receive turn them into the domain's types at
//! their edge (`selection::wire` does) and check there what a schema cannot say. Keys, records, subjects and the rules
//! for workers in other languages are in this folder's README.

pub use prost::{Message, length_delimiter_len};

/// Version 1. Within a major version fields and kinds are only added, and a receiver ignores what it does not know.
#[allow(missing_docs, reason = "the generated code carries the comments of the .proto files")]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/switchtower.v1.rs"));

    /// What every message of this package carries in its field `major`.
    pub const MAJOR: u32 = 1;

    /// The field that carries it, in every message of every version.
    pub const MAJOR_FIELD: u32 = 1;
}
