//! Restore of objects in two steps: plan, then run. [`execute`] does both, and all that follows.
//!
//! ```text
//!  archive ──plan──▶ spool (selected, in run order) ──run──▶ item: strip ▸ actions ▸ modifiers ▸ namespace and labels ▸ create or update ▸ status
//!                    reserve (possible additional items) ───────────┘ additional items come before the item that needs them
//! ```

pub mod action;
pub mod actions;
mod api_requests;
mod backup_volumes;
mod concurrency_limiter;
mod create;
mod env;
mod execute;
mod existing_object;
mod field_ownership;
pub mod hooks;
mod item;
mod item_states;
mod item_steps;
mod namespaces;
mod plan;
mod prepare;
pub mod preview;
mod provisioned_volumes;
mod restore_files;
mod run;
mod volume_snapshot;

pub use backup_volumes::BackupVolumes;
pub use env::{ResolvedSpec, RestoreEnv, RestoreExtensions, RestoreInput, RestoreObject, RestoreState, StartedRestore};
pub use execute::{RestoreResults, execute};
pub use existing_object::ExistingPolicy;
pub use preview::preview;
pub use run::{RestoreRules, RestoreTimeouts};
