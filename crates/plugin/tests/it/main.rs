//! Plugins as they are met in the field: real processes, of Velero's framework, of ours, and bad ones.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::needless_pass_by_value, reason = "what json! makes is given away")]

mod aws;
mod bed;
mod misbehaving;
mod rust;
mod velero;
