//! Dependencies of the operations on backups.

use std::sync::Arc;

use plimsoll_operations::{LeaderClient, OperationRuntime};
use plimsoll_plugin::PluginRegistry;
use plimsoll_volumes::fs_backup::TransferServices;
use plimsoll_volumes::repositories::Repositories;
use plimsoll_volumes::snapshotter::SnapshotServices;
use plimsoll_volumes::storage_location::StorageLocations;

use crate::settings::Settings;

/// Context of the controllers of Backups, Restores and DeleteBackupRequests. Every other controller has its own.
pub struct Context {
    pub leader: LeaderClient,
    /// State that the lifecycles of all kinds share.
    pub runtime: Arc<OperationRuntime>,
    pub settings: Settings,
    /// Opens backup storage locations.
    pub storage: Arc<StorageLocations>,
    /// The repositories of volume data.
    pub repositories: Arc<Repositories>,
    /// Creates and follows transfers of volume data.
    pub transfers: Arc<TransferServices>,
    /// Takes and restores snapshots of plugins.
    pub snapshots: Arc<SnapshotServices>,
    /// The plugins.
    pub plugins: PluginRegistry,
}
