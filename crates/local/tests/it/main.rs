//! The embedded API, held against what Kubernetes does.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that cannot go on fails, and one that is skipped says so"
)]

mod conformance;
mod durability;
mod embedded;
mod history;
mod kubectl;
mod listener;
mod node;
mod node_environment;
mod node_volumes;
mod scale;
