//! Backup of objects: count, read, pack, save, commit.

mod act;
pub mod actions;
mod again;
mod found;
mod pack;
mod plan;
mod read;
mod run;
mod save;

pub use again::read_again;
pub use plan::{BackupPlan, PlannedResource, plan};
pub use run::{BackedUp, BackupRun};
pub use save::{Standing, discard, save_metadata, save_snapshots, standing};
