//! The `switchtower` command.
fn main() {}
