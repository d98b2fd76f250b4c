//! Dependencies of the controllers.

use std::sync::Arc;

use plimsoll_operations::{LeaderClient, LiveProgress, OperationRuntime};
use plimsoll_plugin::PluginRegistry;
use plimsoll_volumes::fs_backup::TransferServices;
use plimsoll_volumes::repositories::Repositories;
use plimsoll_volumes::snapshotter::SnapshotServices;
use plimsoll_volumes::storage_location::StorageLocations;

use crate::settings::Settings;
use crate::sync_warnings::SyncWarnings;

/// Dependencies of the controllers.
pub struct Context {
    pub leader: LeaderClient,
    /// What the lifecycles of all kinds share.
    pub runtime: Arc<OperationRuntime>,
    pub settings: Settings,
    pub live: LiveProgress,
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
    /// Warnings of the sync, by location.
    pub sync_warnings: SyncWarnings,
    /// What comes before the path in a link to a directory's object.
    pub download_base: Option<String>,
}
