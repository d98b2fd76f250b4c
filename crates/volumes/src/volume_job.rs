//! The Backup or Restore whose volumes are worked on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
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
}
