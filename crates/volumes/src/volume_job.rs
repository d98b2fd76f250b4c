//! The Backup or Restore whose volumes are worked on.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use plimsoll_engine::stages::Stage;
use plimsoll_operations::HistoryRecord;
use plimsoll_progress::Task;

/// The Backup or Restore whose volumes are worked on, whatever the method.
#[derive(Clone)]
pub struct VolumeJob {
    /// Its name.
    pub name: String,
    /// Its uid: transfers are found by it.
    pub uid: String,
    /// The Backup or Restore as the owner of what is created for it.
    pub owner: OwnerReference,
    /// The stage in which its volumes are shown.
    pub task: Task,
    /// The same stage, with the volumes that are planned below it.
    pub stage: Stage,
    /// What earlier runs of the same showed.
    pub history: Arc<HistoryRecord>,
}

/// The part of a parent's name that the name of an object of its own can begin with: names have at most 253 characters.
pub(crate) fn name_prefix(parent: &str) -> &str {
    parent.get(..parent.floor_char_boundary(240)).unwrap_or(parent)
}
