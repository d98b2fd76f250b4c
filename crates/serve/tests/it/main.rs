//! The dashboard as those meet it who use it: over HTTP, in a browser, from a collector.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bed;
mod browser;
mod collected;
mod dashboard;
mod freshness;
mod http;
mod smooth;
mod views;
