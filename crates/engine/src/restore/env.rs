//! Input, environment and state of a restore.

use std::sync::Arc;

use futures::future::BoxFuture;
use plimsoll_api::velero::v1::{Backup, Restore};
use plimsoll_archive::volume_info::RestoreVolumeInfo;
use plimsoll_select::resource_modifiers::ResourceModifiers;
use plimsoll_select::resource_order::RestorePriorities;
use plimsoll_select::resource_policies::ResourcePolicies;
use plimsoll_store::Store;
use serde_json::Value;

use super::hooks::RestoreHooks;
use super::run::{RestoreRules, RestoreTimeouts};
use crate::item_operations::{ItemOperationCounts, ItemOperations};
use crate::outcome::Recorder;
use crate::ports::JournalEntry;
use crate::stages::Stages;
use crate::{Error, OperationEnv, PluginLogSink};

/// The input of a restore.
pub struct RestoreInput {
    /// The Restore.
    pub restore: Restore,
    /// The journal of earlier attempts.
    pub journal_entries: Vec<JournalEntry>,
}

/// The environment of a restore.
pub struct RestoreEnv<'a> {
    /// The environment of every operation.
    pub operation: OperationEnv,
    /// The namespace of the Restore and of the ConfigMaps of the actions.
    pub namespace: String,
    /// The Restore object.
    pub object: &'a dyn RestoreObject,
    /// Plugins and volumes.
    pub extensions: &'a dyn RestoreExtensions,
    /// Timeouts.
    pub timeouts: RestoreTimeouts,
    /// Which resources are restored first and last.
    pub priorities: RestorePriorities,
}

/// A restore that has begun.
pub struct StartedRestore {
    /// The Restore object with all defaults, for actions.
    pub restore: Value,
    /// The backup to restore from.
    pub backup: Backup,
    /// The location of the backup.
    pub store: Store,
}

/// The parts of a Restore that are in other objects, or are compiled.
pub struct ResolvedSpec {
    /// `resourcePolicy`.
    pub policies: Option<ResourcePolicies>,
    /// `resourceModifier`.
    pub modifiers: Option<ResourceModifiers>,
    /// `hooks`.
    pub hooks: RestoreHooks,
    /// What cannot be used, without which the restore goes on.
    pub warnings: Vec<String>,
}

/// The Restore object of a restore, and the objects that it refers to.
pub trait RestoreObject: Send + Sync {
    /// Shows that the restore runs, and opens the location of its backup. Every attempt repeats it with the same result.
    fn begin(&self) -> BoxFuture<'_, Result<StartedRestore, Error>>;
    /// Reads the objects that the spec refers to. Retried while the error is retryable.
    fn resolve_spec(&self) -> BoxFuture<'_, Result<ResolvedSpec, Error>>;
    /// Shows the number of items, before the first one is restored.
    fn show_total(&self) -> BoxFuture<'_, Result<(), Error>>;
    /// Shows that the restore waits for item operations. `failed` if it has errors already.
    fn show_waiting(&self, counts: ItemOperationCounts, failed: bool) -> BoxFuture<'_, Result<(), Error>>;
    /// Shows that the restore waits for hooks only. `failed` if it has errors already.
    fn show_finalizing(&self, failed: bool) -> BoxFuture<'_, Result<(), Error>>;
}

/// Extensions of a restore by the caller: item actions of plugins, and the data of volumes.
pub trait RestoreExtensions: Send + Sync {
    /// Adds item actions and the restorers of volumes to the rules.
    fn prepare<'a>(&'a self, rules: &'a mut RestoreRules, state: &'a RestoreState) -> BoxFuture<'a, Result<(), Error>>;
    /// Method and result for each volume that an item action restored. Called after all item operations have ended.
    fn volume_infos(&self) -> Vec<RestoreVolumeInfo>;
    /// Ends the processes of plugins, when all item operations have ended.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// State of a running restore.
pub struct RestoreState {
    /// The restore since it has begun.
    pub begun: StartedRestore,
    /// Its stages.
    pub stages: Stages,
    /// Records outcomes and messages.
    pub recorder: Arc<Recorder>,
    /// Item operations that actions started.
    pub operations: Arc<ItemOperations>,
    /// Log lines of plugins.
    pub plugin_log: Arc<PluginLogSink>,
}

impl RestoreState {
    pub(super) fn new(begun: StartedRestore, stages: Stages, env: &RestoreEnv<'_>) -> Result<Self, Error> {
        let recorder = Arc::new(Recorder::create(&env.operation.scratch)?);
        let plugin_log = Arc::new(PluginLogSink::default());
        plugin_log.attach(&recorder);
        let operations = Arc::new(ItemOperations::new(Arc::clone(&env.operation.journal)));
        Ok(Self { begun, stages, recorder, operations, plugin_log })
    }

    /// Whether the restore has errors so far.
    pub(super) fn has_failed(&self) -> bool {
        self.recorder.counts().0 > 0
    }
}
