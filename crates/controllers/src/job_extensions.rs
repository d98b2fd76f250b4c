//! What the extensions of a Backup and of a Restore have in common.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::go::GoDuration;
use plimsoll_engine::PluginLogSink;
use plimsoll_engine::item_operations::{ItemOperations, operation_timeout};
use plimsoll_engine::ports::Journal;
use plimsoll_engine::stages::Stages;
use plimsoll_operations::{Job, Lifecycle};
use plimsoll_plugin::PluginActions;
use plimsoll_volumes::VolumeJob;
use plimsoll_volumes::fs_backup;
use plimsoll_volumes::snapshotter::{SnapshotContext, SnapshotJob};

use crate::context::Context;
use crate::plugins;

/// The plugins that one operation has opened.
#[derive(Default)]
pub struct OpenedPlugins {
    /// Item actions.
    pub actions: OnceLock<PluginActions>,
    /// Volume snapshotters.
    pub snapshots: OnceLock<Arc<SnapshotContext>>,
}

impl OpenedPlugins {
    /// Ends their processes.
    pub async fn close(&self) {
        if let Some(actions) = self.actions.get() {
            actions.close().await;
        }
        if let Some(snapshots) = self.snapshots.get() {
            snapshots.close().await;
        }
    }
}

/// The timeout of transfers of files, and a warning if the subject has one that cannot be read.
pub fn transfer_timeout<K: Lifecycle<Context = Context>>(job: &Job<K>) -> (Duration, Option<String>) {
    fs_backup::transfer_timeout(job.subject.annotations(), job.context.settings.fs_backup_timeout)
}

/// The subject of a job, as whatever works on its volumes needs it.
pub fn volume_job<K: Lifecycle>(job: &Job<K>, stages: &Stages) -> VolumeJob {
    let stage = stages.stage("volumes");
    VolumeJob {
        name: job.id.name.clone(),
        uid: job.id.uid.clone(),
        owner: job.id.owner(),
        task: stage.task.clone(),
        stage,
        history: Arc::clone(&job.history),
    }
}

/// The parts of a running backup or restore that volume snapshotters need.
pub struct SnapshotParts<'a> {
    /// Its stages.
    pub stages: &'a Stages,
    /// Its item operations.
    pub operations: &'a Arc<ItemOperations>,
    /// Log lines of plugins.
    pub plugin_log: &'a Arc<PluginLogSink>,
    /// `itemOperationTimeout`.
    pub timeout: Option<&'a GoDuration>,
}

/// The subject of a job, as volume snapshotters need it.
pub fn snapshot_job<K: Lifecycle<Context = Context>>(
    job: &Job<K>,
    backup: String,
    parts: &SnapshotParts<'_>,
) -> SnapshotJob {
    SnapshotJob {
        services: Arc::clone(&job.context.snapshots),
        subject: volume_job(job, parts.stages),
        created: job.subject.creation_timestamp().map_or(Timestamp::MIN, |time| time.0),
        backup,
        journal: Arc::clone(&job.journal) as Arc<dyn Journal>,
        known: job.journal_entries.clone(),
        operations: Arc::clone(parts.operations),
        logs: plugins::lines(parts.plugin_log),
        limit: operation_timeout(parts.timeout),
    }
}
