//! Tests of the crate from outside: published vectors, random histories against naive models, the whole way from an
//! engine's report to the index over a bad link, and field reports by name.

mod end_to_end;
mod field_reports;
mod hash_vectors;
mod index_against_model;
mod model;
mod publisher_against_model;
mod world;
