//! The test kit, tested: nobody should trust tests that stand on something untested.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what helps a test fails as a test does")]

mod cluster;
mod conformance;
mod csi;
mod faults;
mod leftovers;
mod peers;
mod proxy;
mod skip;
