//! A private build: one policy crate linked into the whole command.
