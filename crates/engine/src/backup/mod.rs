//! Backup of objects: count, read, write the tarball, write the other files, commit.

pub mod actions;
mod backup_files;
mod item_processor;
mod item_reader;
mod item_tracker;
mod plan;
mod post_operation_items;
mod run;
mod tarball_upload;

pub use backup_files::{ExistingBackup, discard, find_existing_backup, save_metadata, save_snapshots};
pub use plan::{BackupPlan, PlannedResource, plan};
pub use post_operation_items::update_post_operation_items;
pub use run::{BackupResults, BackupRun};
