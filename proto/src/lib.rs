//! The messages on the bus: versioned protobuf packages, and the types generated from them. Wire types only: who sends
//! and receives turns them into the domain's types.

/// Version 1.
#[allow(missing_docs, reason = "the generated code carries the comments of the .proto files")]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/switchtower.v1.rs"));
}
