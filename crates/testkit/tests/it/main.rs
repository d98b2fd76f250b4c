//! Tests of the test kit itself.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod cluster;
mod conformance;
mod csi;
mod faults;
mod leftovers;
mod peers;
mod proxy;
mod skip;
