//! Real plugin processes: with Velero's framework, with ours, and faulty ones.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::needless_pass_by_value, reason = "callers pass values made by json!")]

mod aws_plugin;
mod example_plugin;
mod faulty_plugins;
mod go_plugin;
mod plugin_directory;
