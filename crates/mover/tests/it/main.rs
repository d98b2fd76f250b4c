//! Movers as agents and crashes meet them: each one a real process, each repository a real one.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bed;
mod conformance;
mod failures;
mod keeping;
mod scripted;
mod supervision;
mod untold;
mod volume;
mod watched;
