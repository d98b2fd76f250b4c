//! Backup of objects: count, read, pack, save, commit.

mod pack;
mod plan;
mod read;
mod save;

pub use plan::{BackupPlan, PlannedResource, plan};
pub use read::BackupRun;
pub use save::{Standing, discard, save_metadata, standing};
