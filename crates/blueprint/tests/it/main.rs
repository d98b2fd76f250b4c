//! What the crate promises.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::needless_pass_by_value, reason = "what json! makes is given away")]

mod arguments;
mod board;
mod functions;
mod golden;
mod hostile;
mod kando;
mod output;
mod percent;
mod profile;
mod validate;
