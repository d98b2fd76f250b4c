//! The dashboard as its clients see it: over HTTP, in a browser, from a metrics collector.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod browser;
mod dashboard;
mod freshness;
mod http;
mod many_operations;
mod metrics;
mod test_bed;
mod views;
