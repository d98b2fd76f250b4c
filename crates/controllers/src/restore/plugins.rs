//! The plugins of one Restore, from their registration to their end.

use std::sync::{Arc, OnceLock};

use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::restore::action::RestoreItemAction;
use plimsoll_engine::restore::actions::Actions;
use plimsoll_engine::{Error, PluginLogSink};
use plimsoll_operations::Job;
use plimsoll_plugin::PluginActions;
use plimsoll_volumes::csi::CsiRestore;
use plimsoll_volumes::snapshotter::SnapshotRestore;
use serde_json::Value;

use super::RestoreController;
use crate::{item_operations, plugins};

/// The plugins of one restore.
#[derive(Default)]
pub(super) struct RestorePlugins {
    pub(super) plugin_log: Arc<PluginLogSink>,
    pub(super) actions: OnceLock<PluginActions>,
    pub(super) snapshots: OnceLock<Arc<SnapshotRestore>>,
    pub(super) csi: OnceLock<Arc<CsiRestore>>,
}

impl RestorePlugins {
    /// Registers the actions of plugins, and cancels the operations that a dead server left.
    pub(super) async fn add(
        &self,
        job: &Job<RestoreController>,
        actions: &mut Actions,
        with: &ItemFilter,
        begun: &Value,
    ) -> Result<(), Error> {
        let added = plugins::add_restore_actions(&job.context, actions, with.catalog(), &self.plugin_log).await;
        let operation_client = |action: &Arc<dyn RestoreItemAction>| Arc::clone(action).operation_client();
        item_operations::cancel_abandoned(&job.journal_entries, actions, operation_client, begun, job.journal.as_ref())
            .await?;
        let _ = self.actions.set(added);
        Ok(())
    }

    /// Ends the processes of the plugins.
    pub(super) async fn close(&self) {
        if let Some(actions) = self.actions.get() {
            actions.close().await;
        }
        if let Some(snapshots) = self.snapshots.get() {
            snapshots.close().await;
        }
    }
}
