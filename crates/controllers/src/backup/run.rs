//! The run of a Backup: plan, actions, volumes, item operations.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use plimsoll_api::go::GoDuration;
use plimsoll_api::velero::v1::BackupSpec;
use plimsoll_engine::backup::actions::{BackupItemAction, ItemBlockActions, built_in};
use plimsoll_engine::backup::{self, BackupResults, BackupRun};
use plimsoll_engine::hooks::HookRules;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::item_operations::ItemOperations;
use plimsoll_engine::ports::{Journal, LeadershipGuard, VolumeBackupResults};
use plimsoll_engine::{Error, PluginLogSink, RetryPolicy};
use plimsoll_operations::{Job, Stages};
use plimsoll_plugin::PluginActions;
use plimsoll_store::Store;
use plimsoll_volumes::csi::CsiBackup;
use plimsoll_volumes::fs_backup::{self, FsBackupPolicy};
use plimsoll_volumes::snapshotter::{self, CombinedVolumeBackup, SnapshotBackup};
use serde_json::Value;

use super::BackupController;
use super::volumes::{csi_parameters, fs_backup_of, snapshot_parameters};
use crate::{item_operations, plugins, resource_policy};

/// Default timeout of item operations.
const DEFAULT_OPERATION_TIMEOUT: Duration = Duration::from_hours(4);

pub(super) async fn run(
    job: &Job<BackupController>,
    store: &Store,
    begun: &Value,
    problems: Vec<String>,
    operations: &Arc<ItemOperations>,
    stages: &Stages,
) -> Result<(BackupResults, RunHandles), Error> {
    let planning = stages.start("planning");
    let spec = &job.subject.spec;
    let policies = || resource_policy::policies(&job.context, spec.resource_policy.as_ref());
    let policies = job.read(policies).await?.map_err(Error::Selection)?;
    let plan = backup::plan(
        &job.context.leader.cluster,
        |resources, namespaces| ItemFilter::for_backup(spec, policies.as_ref(), resources, namespaces),
        &planning,
    );
    let (mut plan, item_filter) = job.unless_cancelled(plan).await?;
    let (limit, unread) =
        fs_backup::transfer_timeout(job.subject.annotations(), job.context.settings.fs_backup_timeout);
    plan.warnings.extend(unread);
    let item_filter = Arc::new(item_filter);
    let actions = || built_in(&job.context.leader.cluster, item_filter.catalog());
    let mut actions = job.unless_cancelled(RetryPolicy::default().run(&planning, actions)).await?;
    let plugin_log = Arc::new(PluginLogSink::default());
    let mut blocks = ItemBlockActions::default();
    let adding = plugins::add_backup_actions(&job.context, &mut actions, &mut blocks, &item_filter, &plugin_log);
    let added = Box::pin(job.unless_cancelled(async { Ok(adding.await) })).await?;
    let operation_client = |action: &Arc<dyn BackupItemAction>| Arc::clone(action).operation_client();
    let choose = || snapshotter::choose(&job.context.snapshots, spec);
    let locations =
        job.unless_cancelled(RetryPolicy::default().run(&planning, choose)).await?.map_err(Error::Selection)?;
    let policy =
        FsBackupPolicy::of(spec, policies.clone(), &item_filter, job.context.settings.default_volumes_to_fs_backup);
    let mut csi_parameters = csi_parameters(job, begun, policy.clone(), &item_filter, &plugin_log, stages).await?;
    csi_parameters.plugins = !locations.0.is_empty();
    let csi = CsiBackup::register(csi_parameters, &mut actions, item_filter.catalog())?;
    item_operations::cancel_abandoned(&job.journal_entries, &actions, operation_client, begun, job.journal.as_ref())
        .await?;
    let snapshot_parameters =
        snapshot_parameters(job, locations, policies, &item_filter, operations, &plugin_log, stages);
    let snapshots = Arc::new(SnapshotBackup::new(snapshot_parameters));
    planning.finish();
    let run = BackupRun {
        name: job.id.name.clone(),
        backup: begun.clone(),
        cluster: job.context.leader.cluster.clone(),
        store: store.clone(),
        plan,
        hooks: HookRules::compile(spec.hooks.as_ref(), item_filter.catalog())?,
        item_filter,
        actions,
        blocks,
        operations: Arc::clone(operations),
        plugin_log,
        volumes: Some(Arc::new(CombinedVolumeBackup {
            pods: fs_backup_of(job, begun, policy, limit, stages).await?,
            snapshots: Arc::clone(&snapshots),
            csi: csi.clone(),
        })),
        problems,
        reading: stages.start("reading"),
        saving: stages.planned("saving"),
        guard: Arc::clone(&job.record) as Arc<dyn LeadershipGuard>,
        journal: Arc::clone(&job.journal) as Arc<dyn Journal>,
        cancel: job.cancel.clone(),
        scratch: job.scratch.path().to_owned(),
    };
    let handles = RunHandles { actions: added, snapshots, csi };
    match Box::pin(run.run()).await {
        Ok(done) => Ok((done, handles)),
        Err(error) => {
            operations.cancel(begun).await;
            handles.close().await;
            Err(error)
        }
    }
}

/// The parts of a run with processes or watches.
pub(super) struct RunHandles {
    actions: PluginActions,
    snapshots: Arc<SnapshotBackup>,
    csi: Option<Arc<CsiBackup>>,
}

impl RunHandles {
    pub(super) async fn close(&self) {
        self.actions.close().await;
        self.snapshots.close().await;
    }
}

/// Waits for the item operations of the backup.
pub(super) async fn wait_for_operations(
    job: &Job<BackupController>,
    store: &Store,
    begun: &Value,
    operations: &ItemOperations,
    failed: bool,
) -> Result<(), Error> {
    if operations.is_empty() {
        return Ok(());
    }
    let key = plimsoll_archive::layout::backup_item_operations(&job.id.name);
    let phase = if failed { "WaitingForPluginOperationsPartiallyFailed" } else { "WaitingForPluginOperations" };
    item_operations::wait_for_operations(job, store, &key, begun, operations, phase, operation_limit(&job.subject.spec))
        .await
}

pub(super) fn operation_limit(spec: &BackupSpec) -> Duration {
    let limit = spec.item_operation_timeout.as_ref().and_then(GoDuration::as_std);
    limit.filter(|limit| !limit.is_zero()).unwrap_or(DEFAULT_OPERATION_TIMEOUT)
}

/// Updates the post-operation items in the archive.
pub(super) async fn update_post_operation_items(
    job: &Job<BackupController>,
    store: &Store,
    operations: &ItemOperations,
) -> Result<(), Error> {
    let wanted = operations.post_items();
    if wanted.is_empty() {
        return Ok(());
    }
    let (cluster, name) = (&job.context.leader.cluster, &job.id.name);
    let task = job.tree.root().child("reading again");
    let again = backup::update_post_operation_items(
        cluster,
        store,
        name,
        wanted,
        job.scratch.path(),
        &task,
        job.record.as_ref(),
    );
    for absent in job.unless_cancelled(again).await? {
        tracing::warn!("backup {name}: {absent}");
    }
    task.finish();
    Ok(())
}

/// Writes the files about snapshots again, with the final results.
pub(super) async fn save_final_snapshots(
    job: &Job<BackupController>,
    store: &Store,
    handles: &RunHandles,
    volumes: &VolumeBackupResults,
    operations: &ItemOperations,
) -> Result<VolumeBackupResults, Error> {
    let csi = match &handles.csi {
        Some(csi) => csi.final_results().await?,
        None => Vec::new(),
    };
    if (volumes.snapshots.is_empty() && csi.is_empty()) || operations.is_empty() {
        return Ok(volumes.clone());
    }
    let mut results = handles.snapshots.final_results(volumes).await?;
    for info in csi {
        if let Some(existing) = results.infos.iter_mut().find(|existing| existing.pv_name == info.pv_name) {
            *existing = info;
        }
    }
    backup::save_snapshots(store, &job.id.name, &results, &job.tree.root(), job.record.as_ref()).await?;
    Ok(results)
}
