//! Backup.

mod commit;
pub mod garbage_collection;
mod run;
mod start;
mod volumes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use plimsoll_api::velero::v1::{Backup, BackupPhase, BackupSpec, BackupStorageLocation, PodVolumeBackup};
use plimsoll_api::velero::v2alpha1::DataUpload;
use plimsoll_api::{labels, validate};
use plimsoll_engine::Error;
use plimsoll_engine::backup::{self, ExistingBackup};
use plimsoll_engine::hooks::HookCounts;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::item_operations::ItemOperations;
use plimsoll_engine::ports::Journal;
use plimsoll_operations::{Completion, ItemCounters, Job, Lifecycle, Requirements, SubjectState};
use plimsoll_select::includes::IncludesExcludes;
use plimsoll_store::Store;
use plimsoll_volumes::storage_location::{LocationLookup, is_read_only};
use plimsoll_volumes::{csi, fs_backup, snapshotter};
use serde_json::{Value, json};

use self::commit::{adopt, commit};
use self::run::{run, save_final_snapshots, update_post_operation_items, wait_for_operations};
use self::start::{begin, remove_earlier_attempt, run_pending_hooks};
use self::volumes::{count_csi_snapshots, release_snapshots};
use crate::context::Context;
use crate::{completion, resource_policy};

/// The stages, and about how long they take for a few thousand objects: their weights in the percentage.
const STAGES: [(&str, Duration); 5] = [
    ("planning", Duration::from_secs(1)),
    ("reading", Duration::from_secs(10)),
    // More, once there are any.
    ("volumes", Duration::from_millis(100)),
    ("saving", Duration::from_secs(1)),
    ("committing", Duration::from_millis(500)),
];

/// The lifecycle of a Backup.
pub struct BackupController;

impl Lifecycle for BackupController {
    type Resource = Backup;
    type Context = Context;
    type LiveState = ();
    const VERB: &'static str = "backup";
    const ITEM_COUNTERS: ItemCounters = ItemCounters { stage: "reading", done: "itemsBackedUp" };

    fn state(phase: &str) -> SubjectState {
        match BackupPhase::from(phase) {
            BackupPhase::New | BackupPhase::Queued | BackupPhase::ReadyToStart => SubjectState::New,
            BackupPhase::Other(text) if text.is_empty() => SubjectState::New,
            BackupPhase::InProgress
            | BackupPhase::WaitingForPluginOperations
            | BackupPhase::WaitingForPluginOperationsPartiallyFailed => SubjectState::InProgress,
            phase if phase.is_ended() => SubjectState::Ended,
            _ => SubjectState::Unmanaged,
        }
    }

    fn validate(raw: &Value) -> Vec<String> {
        validate::check(raw).err().map(|invalid| invalid.lines()).unwrap_or_default()
    }

    async fn check_requirements(subject: &Backup, context: &Context) -> Result<Requirements, Error> {
        let mut needs = match context.storage.find(subject.spec.storage_location.as_deref()).await? {
            LocationLookup::Usable(found) if is_read_only(&found) => Requirements {
                faults: vec![format!("BackupStorageLocation {} is read-only", found.name_any())],
                missing: None,
            },
            LocationLookup::Usable(_) => Requirements::default(),
            LocationLookup::Unusable(fault) => Requirements { faults: vec![fault], missing: None },
            LocationLookup::Unchecked(what) => Requirements { faults: Vec::new(), missing: Some(what) },
        };
        needs.faults.extend(filter_faults(context, &subject.spec).await?);
        needs.faults.extend(snapshotter::choose(&context.snapshots, &subject.spec).await?.err());
        Ok(needs)
    }

    fn concurrency(context: &Context) -> usize {
        context.settings.concurrency
    }

    fn queued_status(position: usize) -> Option<Value> {
        Some(json!({ "phase": "Queued", "queuePosition": position }))
    }

    /// An expression that cannot be read claims nothing: validation names it.
    fn exclusive_namespaces(object: &Value, namespaces: &[String]) -> BTreeSet<String> {
        let names = |field: &str| -> Vec<String> {
            let list = object.pointer(&format!("/spec/{field}")).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        match IncludesExcludes::new(&names("includedNamespaces"), &names("excludedNamespaces")) {
            Ok(filter) => namespaces.iter().filter(|name| filter.includes(name)).cloned().collect(),
            Err(_) => BTreeSet::new(),
        }
    }

    async fn execute(job: &Job<Self>) -> Result<Completion, Error> {
        let stages = job.plan_stages(&STAGES);
        let problems = run_pending_hooks(job).await;
        let (location, store) = job.read(|| open_location(job)).await?;
        let begun = begin(job, &location).await?;
        if let ExistingBackup::Committed(metadata) = job.unless_cancelled(remove_earlier_attempt(job, &store)).await? {
            release_snapshots(job).await;
            return Ok(adopt(&metadata));
        }
        let operations = Arc::new(ItemOperations::new(Arc::clone(&job.journal) as Arc<dyn Journal>));
        let (done, handles) = Box::pin(run(job, &store, &begun, problems, &operations, &stages)).await?;
        let waited = wait_for_operations(job, &store, &begun, &operations, done.results.errors.count > 0).await;
        let waited = match waited {
            Ok(()) => update_post_operation_items(job, &store, &operations).await,
            Err(error) => Err(error),
        };
        let settled = match waited {
            Ok(()) => save_final_snapshots(job, &store, &handles, &done.volumes, &operations).await,
            Err(error) => Err(error),
        };
        handles.close().await;
        let volumes = settled?;
        let mut completion = completion::of(&done.results);
        completion::add_item_operations(&mut completion, Self::VERB, &operations);
        if !volumes.snapshots.is_empty() {
            let good = volumes.snapshots.iter().filter(|snapshot| snapshot.status.phase == "Completed").count();
            completion.status["volumeSnapshotsAttempted"] = json!(volumes.snapshots.len());
            completion.status["volumeSnapshotsCompleted"] = json!(good);
        }
        let HookCounts { attempted, failed } = done.hooks;
        completion.status["hookStatus"] = json!({ "hooksAttempted": attempted, "hooksFailed": failed });
        count_csi_snapshots(&volumes.infos, &mut completion);
        commit(job, &store, &begun, &completion, &stages).await?;
        release_snapshots(job).await;
        Ok(completion)
    }

    async fn abort(job: &Job<Self>, error: &Error) {
        // What is not ours is not ours to touch.
        if matches!(error, Error::BackupExists { .. } | Error::UnfinishedBackupExists { .. }) {
            return;
        }
        let own = format!("{}={}", labels::BACKUP_UID, job.id.uid);
        fs_backup::cancel_transfers::<PodVolumeBackup>(&job.context.leader, &own, &job.tree.root()).await;
        fs_backup::cancel_transfers::<DataUpload>(&job.context.leader, &own, &job.tree.root()).await;
        snapshotter::discard(&job.context.snapshots, &job.id.uid).await;
        csi::delete_snapshots(&job.context.leader, &job.id.uid).await;
        if let Ok((_, store)) = open_location(job).await
            && let Err(error) = backup::discard(&store, &job.id.name).await
        {
            tracing::warn!("backup {}: cannot remove what it left in the location: {error}", job.id.name);
        }
    }
}

/// What is wrong with the filters, as far as that can be known before the cluster is read.
async fn filter_faults(context: &Context, spec: &BackupSpec) -> Result<Vec<String>, Error> {
    Ok(match resource_policy::policies(context, spec.resource_policy.as_ref()).await? {
        Ok(policies) => ItemFilter::for_backup(spec, policies.as_ref(), &[], &[]).err().map(|e| e.to_string()),
        Err(fault) => Some(fault),
    }
    .into_iter()
    .collect())
}

async fn open_location(job: &Job<BackupController>) -> Result<(Box<BackupStorageLocation>, Store), Error> {
    match job.context.storage.find(job.subject.spec.storage_location.as_deref()).await? {
        LocationLookup::Usable(found) => {
            let store = job.context.storage.open(&found).await?;
            Ok((found, store))
        }
        LocationLookup::Unusable(why) | LocationLookup::Unchecked(why) => Err(Error::Selection(why)),
    }
}
