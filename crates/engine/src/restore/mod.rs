//! Restore of objects in two steps: plan, then run.
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
mod existing_object;
mod field_ownership;
pub mod hooks;
mod item;
mod item_states;
mod item_steps;
mod namespaces;
mod plan;
pub mod preview;
mod restore_files;
mod run;
mod volume_snapshot;

pub use backup_volumes::BackupVolumes;
pub use existing_object::ExistingPolicy;
pub use item::RestoreOrigin;
pub use plan::{RestorePlan, plan};
pub use preview::preview;
pub use restore_files::save;
pub use run::{RestoreRules, RestoreRun, RestoreTimeouts, RunState};
