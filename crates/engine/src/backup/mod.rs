//! Backup of objects: count, read, write the tarball, write the other files, commit. [`execute`] does all of it.

pub mod actions;
mod additional_items;
mod backup_files;
mod collect;
mod earlier_attempt;
mod env;
mod execute;
mod finish;
mod item_blocks;
mod item_processor;
mod item_reader;
mod item_tracker;
mod left_unfinished;
mod plan;
mod post_operation_items;
mod prepare;
mod state;
mod tarball_upload;

pub use collect::BackupResults;
pub use env::{BackupEnv, BackupExtensions, BackupInput, BackupObject};
pub use execute::{BackupOutcome, execute};
pub use plan::{BackupPlan, PlannedResource, plan};
pub use state::{BackupState, PlannedBackup};
