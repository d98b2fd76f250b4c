//! Movers as real processes with real repositories.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod conformance;
mod failures;
mod maintenance;
mod progress_sample;
mod repositories;
mod scripted;
mod supervision;
mod testbed;
mod verify;
mod volume;
mod without_proc;
