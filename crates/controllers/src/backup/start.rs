//! The start of a Backup: its first status, and the clean-up after an earlier attempt.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use plimsoll_api::go::GoDuration;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{BackupSpec, BackupStorageLocation};
use plimsoll_engine::backup::{self, ExistingBackup};
use plimsoll_engine::hooks::{self, PendingPostHooks};
use plimsoll_engine::ports::{Effect, LeadershipGuard};
use plimsoll_engine::{Error, RetryPolicy, kill, show_store_waits};
use plimsoll_operations::Job;
use plimsoll_store::Store;
use plimsoll_volumes::fs_backup::all_by_default;
use plimsoll_volumes::snapshotter;
use serde_json::{Value, json};

use super::BackupController;

/// Runs the pending post-hooks of an earlier attempt first, because applications may be frozen. Returns the errors.
pub(super) async fn run_pending_hooks(job: &Job<BackupController>) -> Vec<String> {
    let pending =
        job.journal_entries.iter().filter(|known| known.result.is_none()).filter_map(|known| match &known.effect {
            Effect::Hooks { uid, post, .. } => {
                Some((known.id, PendingPostHooks { uid: uid.clone(), post: post.clone() }))
            }
            _ => None,
        });
    let (journal, guard) = (job.journal.as_ref(), job.record.as_ref());
    hooks::run_pending_post_hooks(&job.context.leader.cluster, pending.collect(), journal, guard, &job.tree.root())
        .await
}

/// The first write: phase, times and defaults. Every attempt repeats it with the same result.
pub(super) async fn begin(job: &Job<BackupController>, location: &BackupStorageLocation) -> Result<Value, Error> {
    let backup = &job.subject;
    let started = backup.status.as_ref().and_then(|status| status.start_timestamp.clone());
    let started = started.map_or_else(Timestamp::now, |time| time.0);
    let ttl = backup.spec.ttl.as_ref().and_then(GoDuration::as_std).filter(|ttl| !ttl.is_zero());
    let ttl = ttl.unwrap_or(job.context.settings.default_ttl);
    let expires = started.saturating_add(SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX));
    let choose = || snapshotter::choose(&job.context.snapshots, &backup.spec);
    let snapshot_locations =
        RetryPolicy::default().run(&job.tree.root(), choose).await?.map_err(Error::Selection)?.names();
    let patch = json!({
        "metadata": {
            "labels": { labels::STORAGE_LOCATION: labels::valid_name(&location.name_any()) },
            "annotations": source_cluster(job).await?,
        },
        "spec": defaults(&backup.spec, &location.name_any(), ttl, &snapshot_locations, job.context.settings.default_volumes_to_fs_backup),
        "status": {
            "phase": "InProgress",
            "queuePosition": null,
            "version": 1,
            "formatVersion": "1.1.0",
            "startTimestamp": format!("{started:.0}"),
            "expiration": format!("{:.0}", expires.unwrap_or(Timestamp::MAX)),
        },
    });
    kill::point("status.begin.before");
    let begun = job.patch_subject(&patch).await?;
    kill::point("status.begin.after");
    Ok(begun)
}

/// The defaults that are written into the spec, for readers of the backup.
fn defaults(
    spec: &BackupSpec,
    location: &str,
    ttl: Duration,
    snapshot_locations: &[String],
    all_volumes: bool,
) -> Value {
    let namespaces = &spec.included_namespaces;
    let namespaces = if namespaces.is_empty() { &vec!["*".into()] } else { namespaces };
    let or = |given: &Option<GoDuration>, default: u64| {
        let given = given.clone().filter(|given| given.as_std().is_some_and(|duration| !duration.is_zero()));
        given.unwrap_or_else(|| GoDuration::from_secs(default)).to_string()
    };
    let mut spec_defaults = json!({
        "storageLocation": location,
        "ttl": GoDuration::from(ttl).to_string(),
        "includedNamespaces": namespaces,
        "csiSnapshotTimeout": or(&spec.csi_snapshot_timeout, 10 * 60),
        "itemOperationTimeout": or(&spec.item_operation_timeout, 4 * 60 * 60),
        "defaultVolumesToFsBackup": all_by_default(spec, all_volumes),
        "snapshotMoveData": spec.snapshot_move_data.unwrap_or(false),
    });
    if !snapshot_locations.is_empty() {
        spec_defaults["volumeSnapshotLocations"] = json!(snapshot_locations);
    }
    spec_defaults
}

/// Annotations with the version of the source cluster.
async fn source_cluster(job: &Job<BackupController>) -> Result<Value, Error> {
    let root = job.tree.root();
    let version = RetryPolicy::default().run(&root, || job.context.leader.cluster.get("/version")).await?;
    let version: Value = version.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    Ok(json!({
        labels::SOURCE_CLUSTER_K8S_GIT_VERSION: version["gitVersion"],
        labels::SOURCE_CLUSTER_K8S_MAJOR: version["major"],
        labels::SOURCE_CLUSTER_K8S_MINOR: version["minor"],
        labels::RESOURCE_TIMEOUT: "10m0s",
    }))
}

/// Looks for files of the backup in the location, and deletes those of an earlier attempt.
pub(super) async fn remove_earlier_attempt(
    job: &Job<BackupController>,
    store: &Store,
) -> Result<ExistingBackup, Error> {
    let root = job.tree.root();
    let _waits = show_store_waits(store, &root);
    let find_existing = || async { backup::find_existing_backup(store, &job.id.name, &job.id.uid).await };
    let found = RetryPolicy::default().run(&root, find_existing).await?;
    if found == ExistingBackup::Unfinished {
        if !has_written(job) {
            return Err(Error::UnfinishedBackupExists { name: job.id.name.clone(), location: store.name().to_owned() });
        }
        job.record.check_effect()?;
        kill::point("backup.discard.before");
        backup::discard(store, &job.id.name).await?;
    }
    Ok(found)
}

/// Whether an earlier attempt may have written into the location.
fn has_written(job: &Job<BackupController>) -> bool {
    let directory = plimsoll_archive::layout::backup_directory(&job.id.name);
    job.journal_entries.iter().any(|known| known.effect == Effect::Begin { prefix: directory.clone() })
}
