//! What the crate promises.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::needless_pass_by_value, reason = "what json! makes is given away")]

mod action_set_status;
mod arguments;
mod functions;
mod golden;
mod hostile;
mod kando;
mod output;
mod percent;
mod profile;
mod validate;
