//! Plugins as they are met in the field: real processes, of Velero's framework, of ours, and bad ones.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod aws;
mod bed;
mod misbehaving;
mod rust;
mod velero;
