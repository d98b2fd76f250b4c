//! Backup, restore and deletion as plan, run and outcome: [`backup::execute`], [`restore::execute`], [`delete::execute`].
//!
//! ```text
//!  Selection ──▶ plan ──▶ run ──▶ outcome
//!                 │        │        └ for each item: succeeded, skipped or failed, with a stable reason; spooled, never held
//!                 │        └ meters (progress), a cancellation token, and ports for the journal and the leadership check
//!                 └ a value: small enough to show (`--dry-run`) and to keep, and computed again after a crash
//! ```
//!
//! An operation belongs to the engine from its first write to its commit, and so do the removal of what a failed attempt
//! wrote and the use of what an interrupted one left. Each `execute` takes an input and an environment. The environment
//! has what other crates implement: the custom resource, and the extensions (plugins, volumes).
//!
//! The engine does not know controllers, leases or the status of custom resources. It reports to [`plimsoll_progress`] and
//! calls its [`ports`] before every effect that cannot be repeated. It never holds all items in memory, never writes progress
//! to the API server, and never prints.

mod action_call;
pub mod backup;
mod backup_lists;
mod cancellation;
mod chunk_reader;
pub mod cluster;
pub mod delete;
mod error;
pub mod exec;
pub mod hooks;
pub mod item_filter;
pub mod item_operations;
pub mod kill;
pub mod log;
mod operation_env;
mod operation_files;
pub mod outcome;
mod plugin_log;
pub mod ports;
pub mod registry;
pub mod restore;
mod retry;
pub mod stages;
mod store_waits;
mod verify_files;

pub use backup_lists::{ValidBackupList, read_backup_list};
pub(crate) use cancellation::unless_cancelled;
pub use error::{Error, FencedRequest};
pub use operation_env::OperationEnv;
pub use plugin_log::PluginLogSink;
pub use retry::RetryPolicy;
pub(crate) use store_waits::show_store_waits;
pub use verify_files::{VerifiedFiles, verify_backup_files};
