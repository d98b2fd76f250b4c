//! What other programs rely on: the definitions, the wire format and the texts of faults.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

mod crds;
mod durations;
mod round_trip;
mod upstream;
mod validation;
