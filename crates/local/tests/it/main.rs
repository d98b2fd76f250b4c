//! Tests of the embedded API against the behaviour of Kubernetes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests may panic, and print why they are skipped"
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
