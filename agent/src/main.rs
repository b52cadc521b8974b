//! Placeholder.
pub fn main() {}
