//! The cost of reporting.
fn main() {}
