//! What is told about objects, from the objects alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod causes;
mod following;
mod overview;
mod stock;
