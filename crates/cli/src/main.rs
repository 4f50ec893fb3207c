//! The finback binary.
fn main() {}
