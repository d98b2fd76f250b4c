//! What the crate promises.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod arguments;
mod board;
mod functions;
mod golden;
mod hostile;
mod kando;
mod output;
mod percent;
mod place;
mod validate;
