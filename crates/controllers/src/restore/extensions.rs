//! Plugins and volumes of a Restore.

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use plimsoll_archive::volume_info::RestoreVolumeInfo;
use plimsoll_engine::Error;
use plimsoll_engine::outcome::Scope;
use plimsoll_engine::restore::{RestoreExtensions, RestoreRules, RestoreState};
use plimsoll_operations::Job;
use plimsoll_volumes::csi::{self, CsiRestore};
use plimsoll_volumes::snapshotter::SnapshotRestore;

use super::RestoreController;
use super::volumes::{csi_parameters, files_to_restore, fs_restore, plan_movement, snapshot_restore};
use crate::job_extensions::{OpenedPlugins, transfer_timeout};
use crate::plugins;

/// The plugins and volumes of one Restore.
pub(super) struct JobExtensions<'a> {
    job: &'a Job<RestoreController>,
    plugins: OpenedPlugins,
    snapshots: OnceLock<Arc<SnapshotRestore>>,
    csi: OnceLock<Arc<CsiRestore>>,
}

impl<'a> JobExtensions<'a> {
    pub(super) fn new(job: &'a Job<RestoreController>) -> Self {
        Self { job, plugins: OpenedPlugins::default(), snapshots: OnceLock::new(), csi: OnceLock::new() }
    }

    async fn add_plugins_and_volumes(&self, rules: &mut RestoreRules, state: &RestoreState) -> Result<(), Error> {
        let (job, context) = (self.job, &self.job.context);
        let catalog = rules.item_filter.catalog();
        let csi = csi::register_restore(csi_parameters(job, state), &mut rules.actions, catalog)?;
        rules.volumes.set_csi(csi.supports_snapshots());
        let _ = self.csi.set(csi);
        let added = plugins::add_restore_actions(context, &mut rules.actions, catalog, &state.plugin_log).await;
        let _ = self.plugins.actions.set(added);
        self.add_files(rules, state)?;
        plan_movement(job, rules, state);
        if let Some(snapshots) = snapshot_restore(job, rules, state) {
            let _ = self.plugins.snapshots.set(Arc::clone(snapshots.context()));
            let _ = self.snapshots.set(Arc::clone(&snapshots));
            rules.snapshots = Some(snapshots);
        }
        Ok(())
    }

    /// Adds the restore of the files of pod volumes.
    fn add_files(&self, rules: &mut RestoreRules, state: &RestoreState) -> Result<(), Error> {
        let (limit, unread) = transfer_timeout(self.job);
        if let Some(warning) = unread {
            state.recorder.warn(&Scope::Operation, warning);
        }
        let files = files_to_restore(&rules.volumes, &rules.item_filter, &state.recorder);
        rules.data = fs_restore(self.job, state, files, limit, &mut rules.actions, rules.item_filter.catalog())?;
        Ok(())
    }
}

impl RestoreExtensions for JobExtensions<'_> {
    fn prepare<'a>(&'a self, rules: &'a mut RestoreRules, state: &'a RestoreState) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.add_plugins_and_volumes(rules, state))
    }

    fn volume_infos(&self) -> Vec<RestoreVolumeInfo> {
        let mut infos = self.snapshots.get().map(|snapshots| snapshots.infos()).unwrap_or_default();
        infos.extend(self.csi.get().map(|csi| csi.infos()).unwrap_or_default());
        infos
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.plugins.close())
    }
}
