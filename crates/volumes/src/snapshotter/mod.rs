//! Snapshots that plugins take of volumes, and volumes that they make from them.
//!
//! ```text
//!  PersistentVolume ── places: whose plugin knows it? ──▶ CreateSnapshot ──▶ volumesnapshots, volumeinfo
//!                                                              │
//!      VolumePluginBackup, the plugin's own or ours ◀── live ──┘── still moving? ──▶ WaitingForPluginOperations
//! ```
//!
//! A snapshot cannot be taken back and is not taken twice: it is in the journal before it is asked for. One that a server
//! asked for and died is looked for among the plugin's records, and named as a possible orphan if it is not there.

mod backup;
mod delete;
mod earlier;
mod locations;
mod pending;
mod plugin_operation;
mod records;
mod restore;
mod zone;

pub use backup::{CombinedVolumeBackup, SnapshotBackup, SnapshotBackupParameters};
pub use delete::{delete_snapshots, discard};
pub use locations::{ChosenLocations, choose};
pub use restore::{SnapshotRestore, SnapshotRestoreParameters};

use std::sync::Arc;

use plimsoll_operations::LeaderClient;

use crate::storage_location::StorageLocations;

/// Dependencies of taking and restoring snapshots.
pub struct SnapshotServices {
    /// The connection of the leader.
    pub leader: LeaderClient,
    /// Plugins, and the credentials of snapshot locations.
    pub storage: Arc<StorageLocations>,
}
