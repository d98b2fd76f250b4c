//! Snapshots that plugins take of volumes, and volumes that they create from them.
//!
//! ```text
//!  PersistentVolume ── locations: which plugin supports it? ──▶ CreateSnapshot ──▶ volumesnapshots, volumeinfo
//!                                                                    │
//!       VolumePluginBackup, the plugin's own or ours ◀── operation ──┘── in progress? ──▶ WaitingForPluginOperations
//! ```
//!
//! A snapshot is never taken twice: its intent is in the journal before the call. If a server died during the call, its
//! successor searches the plugin's records, and reports a possible orphan if it finds nothing.

mod backup;
mod context;
mod delete;
mod earlier;
mod locations;
mod pending;
mod plugin_operation;
mod records;
mod restore;
mod zone;

pub use backup::{CombinedVolumeBackup, SnapshotBackup, SnapshotBackupParameters};
pub use context::{SnapshotContext, SnapshotJob};
pub use delete::{delete_snapshots, discard};
pub use locations::{ChosenLocations, choose};
pub use restore::{SnapshotRestore, SnapshotRestoreParameters};

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_operations::LeaderClient;

use crate::storage_location::StorageLocations;

/// Dependencies of taking and restoring snapshots.
pub struct SnapshotServices {
    /// The connection of the leader.
    pub leader: LeaderClient,
    /// Plugins, and the credentials of snapshot locations.
    pub storage: Arc<StorageLocations>,
    /// The default snapshot locations, by provider.
    pub defaults: BTreeMap<String, String>,
}
