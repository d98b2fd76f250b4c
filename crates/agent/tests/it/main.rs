//! The agent of a node on the in-process API, with movers that are scripts.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod cache;
mod lease;
mod restore_wait;
mod test_bed;
mod transfer;
