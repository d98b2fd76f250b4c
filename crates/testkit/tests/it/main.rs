//! The test kit, tested: nobody should trust tests that stand on something untested.

mod cluster;
mod conformance;
mod faults;
mod leftovers;
mod peers;
mod proxy;
mod skip;
