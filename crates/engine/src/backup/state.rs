//! The state of a running backup.

use std::sync::Arc;

use plimsoll_select::resource_policies::ResourcePolicies;
use plimsoll_store::Store;
use serde_json::Value;

use super::actions::{BackupItemActions, ItemBlockActions};
use super::env::{BackupEnv, BackupInput};
use super::plan::BackupPlan;
use crate::PluginLogSink;
use crate::hooks::HookRules;
use crate::item_filter::ItemFilter;
use crate::item_operations::ItemOperations;
use crate::ports::VolumeBackupper;
use crate::stages::Stages;

/// A running backup.
pub(super) struct BackupRun<'a> {
    pub(super) input: &'a BackupInput,
    pub(super) env: &'a BackupEnv<'a>,
    pub(super) state: BackupState,
}

/// State of a running backup.
pub struct BackupState {
    /// The location to write to.
    pub store: Store,
    /// The Backup object since the backup has begun, for actions.
    pub backup: Value,
    /// Its stages.
    pub stages: Stages,
    /// Item operations that actions started.
    pub operations: Arc<ItemOperations>,
    /// Log lines of plugins.
    pub plugin_log: Arc<PluginLogSink>,
}

/// What is read, and what is done with each item.
pub struct PlannedBackup {
    /// The resources to read.
    pub plan: BackupPlan,
    /// The filters.
    pub item_filter: Arc<ItemFilter>,
    /// The resource policies.
    pub policies: Option<ResourcePolicies>,
    /// Hooks.
    pub hooks: HookRules,
    /// Backup item actions.
    pub actions: BackupItemActions,
    /// Item block actions.
    pub blocks: ItemBlockActions,
    /// Backs up volume data, if supported.
    pub volumes: Option<Arc<dyn VolumeBackupper>>,
}
