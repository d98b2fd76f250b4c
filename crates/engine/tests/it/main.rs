//! The engine as its callers see it, on an in-process cluster and a directory as location.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod backup;
mod backup_hooks;
mod delete;
mod item_operations;
mod log;
mod outcome;
mod plugin_log;
mod provisioned_volumes;
mod registry;
mod restore;
mod restore_hooks;
mod test_bed;
