//! The `cuesta` command.
fn main() {}
