//! The public surface: definitions, wire format and error texts.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod crds;
mod durations;
mod round_trip;
mod spec_fields;
mod upstream;
mod validation;
