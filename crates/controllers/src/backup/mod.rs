//! Backup.

pub mod garbage_collection;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use plimsoll_api::go::GoDuration;
use plimsoll_api::plimsoll::v1alpha1::OperationState;
use plimsoll_api::velero::v1::{
    Backup, BackupPhase, BackupSpec, BackupStorageLocation, PodVolumeBackup, UploaderConfigForBackup, UploaderSettings,
};
use plimsoll_api::velero::v2alpha1::DataUpload;
use plimsoll_api::{labels, validate};
use plimsoll_archive::volume_info::BackupVolumeInfo;
use plimsoll_engine::backup::actions::{BackupItemAction, ItemBlockActions, built_in};
use plimsoll_engine::backup::{self, BackedUp, BackupRun, Standing};
use plimsoll_engine::hooks::{self, HookCounts, HookRules, OpenPair};
use plimsoll_engine::operations::Operations;
use plimsoll_engine::ports::{Effect, Guard, Journal, VolumeResults};
use plimsoll_engine::selection::Selecting;
use plimsoll_engine::{Error, Heard, Patience, kill, show_waits};
use plimsoll_operations::{Completion, ItemCounters, Job, Lifecycle, Requirements, Stages, SubjectState, projection};
use plimsoll_plugin::PluginActions;
use plimsoll_progress::Snapshot;
use plimsoll_select::includes::IncludesExcludes;
use plimsoll_select::resource_policies::ResourcePolicies;
use plimsoll_store::Store;
use plimsoll_volumes::VolumeJob;
use plimsoll_volumes::csi::{self, CsiBackup, CsiBackupParameters, DataMovement};
use plimsoll_volumes::fs_backup::{self, FsBackup, FsBackupParameters, FsBackupPolicy, all_by_default};
use plimsoll_volumes::snapshotter::{self, BackupVolumes, SnapshotBackup, SnapshotBackupParameters};
use plimsoll_volumes::storage_location::{LocationLookup, is_read_only};
use serde_json::{Value, json};

use crate::context::Context;
use crate::{completion, item_operations, plugins, resource_policy};

/// The stages, and about how long they take for a few thousand objects: their weights in the percentage.
const STAGES: [(&str, Duration); 5] = [
    ("planning", Duration::from_secs(1)),
    ("reading", Duration::from_secs(10)),
    // More, once there are any.
    ("volumes", Duration::from_millis(100)),
    ("saving", Duration::from_secs(1)),
    ("committing", Duration::from_millis(500)),
];

/// How long work in the background may take where a Backup does not say.
const OPERATION_LIMIT: Duration = Duration::from_hours(4);

/// How long a CSI driver may take until it has a snapshot, where a Backup does not say.
const CSI_LIMIT: Duration = Duration::from_mins(10);

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
        let problems = close_hooks(job).await;
        let (location, store) = job.read(|| open_location(job)).await?;
        let begun = begin(job, &location).await?;
        if let Standing::Committed(metadata) = job.unless_cancelled(clear(job, &store)).await? {
            release_snapshots(job).await;
            return Ok(adopt(&metadata));
        }
        let operations = Arc::new(Operations::new(Arc::clone(&job.journal) as Arc<dyn Journal>));
        let (done, helpers) = Box::pin(run(job, &store, &begun, problems, &operations, &stages)).await?;
        let waited = wait_for_operations(job, &store, &begun, &operations, done.results.errors.count > 0).await;
        let waited = match waited {
            Ok(()) => read_again(job, &store, &operations).await,
            Err(error) => Err(error),
        };
        let settled = match waited {
            Ok(()) => settle_snapshots(job, &store, &helpers, &done.volumes, &operations).await,
            Err(error) => Err(error),
        };
        helpers.close().await;
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
        if matches!(error, Error::Exists { .. } | Error::Occupied { .. }) {
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

/// Snapshots whose data was moved are counted as operations, not as snapshots: they do not stay.
fn count_csi_snapshots(infos: &[BackupVolumeInfo], completion: &mut Completion) {
    let taken = |info: &&BackupVolumeInfo| info.backup_method == "CSISnapshot" && !info.snapshot_data_moved;
    let ready =
        |info: &&BackupVolumeInfo| info.csi_snapshot_info.as_ref().and_then(|csi| csi.ready_to_use) == Some(true);
    let attempted = infos.iter().filter(taken).count();
    if attempted > 0 {
        completion.status["csiVolumeSnapshotsAttempted"] = json!(attempted);
        completion.status["csiVolumeSnapshotsCompleted"] = json!(infos.iter().filter(taken).filter(ready).count());
    }
}

/// The objects of CSI snapshots go when the backup has ended; what they stand for stays, unless its data is elsewhere.
async fn release_snapshots(job: &Job<BackupController>) {
    match job.subject.spec.snapshot_move_data {
        Some(true) => csi::delete_snapshots(&job.context.leader, &job.id.uid).await,
        _ => csi::release_snapshots(&job.context.leader, &job.id.uid).await,
    }
}

/// What is wrong with the filters, as far as that can be known before the cluster is read.
async fn filter_faults(context: &Context, spec: &BackupSpec) -> Result<Vec<String>, Error> {
    Ok(match resource_policy::policies(context, spec.resource_policy.as_ref()).await? {
        Ok(policies) => Selecting::for_backup(spec, policies.as_ref(), &[], &[]).err().map(|e| e.to_string()),
        Err(fault) => Some(fault),
    }
    .into_iter()
    .collect())
}

/// A server that died may have left applications standing still: nothing comes before letting them go. Returns what went
/// wrong, in words.
async fn close_hooks(job: &Job<BackupController>) -> Vec<String> {
    let left_open =
        job.journal_entries.iter().filter(|known| known.result.is_none()).filter_map(|known| match &known.effect {
            Effect::Hooks { uid, post, .. } => Some((known.id, OpenPair { uid: uid.clone(), post: post.clone() })),
            _ => None,
        });
    let (journal, guard) = (job.journal.as_ref(), job.record.as_ref());
    hooks::close_left_open(&job.context.leader.cluster, left_open.collect(), journal, guard, &job.tree.root()).await
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

/// The first write: phase, times, and what was left to defaults. Done again by every attempt, with the same result.
async fn begin(job: &Job<BackupController>, location: &BackupStorageLocation) -> Result<Value, Error> {
    let backup = &job.subject;
    let started = backup.status.as_ref().and_then(|status| status.start_timestamp.clone());
    let started = started.map_or_else(Timestamp::now, |time| time.0);
    let ttl = backup.spec.ttl.as_ref().and_then(GoDuration::as_std).filter(|ttl| !ttl.is_zero());
    let ttl = ttl.unwrap_or(job.context.settings.default_ttl);
    let expires = started.saturating_add(SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX));
    let choose = || snapshotter::choose(&job.context.snapshots, &backup.spec);
    let places = Patience::default().run(&job.tree.root(), choose).await?.map_err(Error::Selection)?.names();
    let patch = json!({
        "metadata": {
            "labels": { labels::STORAGE_LOCATION: labels::valid_name(&location.name_any()) },
            "annotations": source_cluster(job).await?,
        },
        "spec": defaults(&backup.spec, &location.name_any(), ttl, &places, job.context.settings.default_volumes_to_fs_backup),
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

/// What a spec leaves to the server, written into the spec: readers of the backup should not have to know our defaults.
fn defaults(spec: &BackupSpec, location: &str, ttl: Duration, places: &[String], all_volumes: bool) -> Value {
    let namespaces = &spec.included_namespaces;
    let namespaces = if namespaces.is_empty() { &vec!["*".into()] } else { namespaces };
    let or = |given: &Option<GoDuration>, default: u64| {
        let given = given.clone().filter(|given| given.as_std().is_some_and(|duration| !duration.is_zero()));
        given.unwrap_or_else(|| GoDuration::from_secs(default)).to_string()
    };
    let mut said = json!({
        "storageLocation": location,
        "ttl": GoDuration::from(ttl).to_string(),
        "includedNamespaces": namespaces,
        "csiSnapshotTimeout": or(&spec.csi_snapshot_timeout, 10 * 60),
        "itemOperationTimeout": or(&spec.item_operation_timeout, 4 * 60 * 60),
        "defaultVolumesToFsBackup": all_by_default(spec, all_volumes),
        "snapshotMoveData": spec.snapshot_move_data.unwrap_or(false),
    });
    if !places.is_empty() {
        said["volumeSnapshotLocations"] = json!(places);
    }
    said
}

/// Which Kubernetes the backup is of.
async fn source_cluster(job: &Job<BackupController>) -> Result<Value, Error> {
    let root = job.tree.root();
    let version = Patience::default().run(&root, || job.context.leader.cluster.get("/version")).await?;
    let version: Value = version.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    Ok(json!({
        labels::SOURCE_CLUSTER_K8S_GIT_VERSION: version["gitVersion"],
        labels::SOURCE_CLUSTER_K8S_MAJOR: version["major"],
        labels::SOURCE_CLUSTER_K8S_MINOR: version["minor"],
        labels::RESOURCE_TIMEOUT: "10m0s",
    }))
}

/// Looks what lies in the location under this name, and removes what an earlier attempt left.
async fn clear(job: &Job<BackupController>, store: &Store) -> Result<Standing, Error> {
    let root = job.tree.root();
    let _waits = show_waits(store, &root);
    let standing = || async { backup::standing(store, &job.id.name, &job.id.uid).await };
    let found = Patience::default().run(&root, standing).await?;
    if found == Standing::Unfinished {
        if !has_begun(job) {
            return Err(Error::Occupied { name: job.id.name.clone(), location: store.name().to_owned() });
        }
        job.record.effect()?;
        kill::point("backup.discard.before");
        backup::discard(store, &job.id.name).await?;
    }
    Ok(found)
}

/// Whether an earlier attempt had written, or may have written, into the location.
fn has_begun(job: &Job<BackupController>) -> bool {
    let directory = plimsoll_archive::layout::backup_directory(&job.id.name);
    job.journal_entries.iter().any(|known| known.effect == Effect::Begin { prefix: directory.clone() })
}

/// Work that item actions began in the background ends before the backup does.
async fn wait_for_operations(
    job: &Job<BackupController>,
    store: &Store,
    begun: &Value,
    operations: &Operations,
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

fn operation_limit(spec: &BackupSpec) -> Duration {
    let limit = spec.item_operation_timeout.as_ref().and_then(GoDuration::as_std);
    limit.filter(|limit| !limit.is_zero()).unwrap_or(OPERATION_LIMIT)
}

/// What actions want to be read again once their work has ended takes its place in the archive.
async fn read_again(job: &Job<BackupController>, store: &Store, operations: &Operations) -> Result<(), Error> {
    let wanted = operations.post_items();
    if wanted.is_empty() {
        return Ok(());
    }
    let (cluster, name) = (&job.context.leader.cluster, &job.id.name);
    let task = job.tree.root().child("reading again");
    let again = backup::read_again(cluster, store, name, wanted, job.scratch.path(), &task, job.record.as_ref());
    for absent in job.unless_cancelled(again).await? {
        tracing::warn!("backup {name}: {absent}");
    }
    task.finish();
    Ok(())
}

/// Who helped with a backup and has processes of its own.
struct Helpers {
    actions: PluginActions,
    snapshots: Arc<SnapshotBackup>,
    csi: Option<Arc<CsiBackup>>,
}

impl Helpers {
    async fn close(&self) {
        self.actions.close().await;
        self.snapshots.close().await;
    }
}

/// Snapshots that still moved when the files were written are written down again, as they ended.
async fn settle_snapshots(
    job: &Job<BackupController>,
    store: &Store,
    helpers: &Helpers,
    volumes: &VolumeResults,
    operations: &Operations,
) -> Result<VolumeResults, Error> {
    let csi = match &helpers.csi {
        Some(csi) => csi.settled().await?,
        None => Vec::new(),
    };
    if (volumes.snapshots.is_empty() && csi.is_empty()) || operations.is_empty() {
        return Ok(volumes.clone());
    }
    let mut settled = helpers.snapshots.settled(volumes).await?;
    for info in csi {
        if let Some(known) = settled.infos.iter_mut().find(|known| known.pv_name == info.pv_name) {
            *known = info;
        }
    }
    backup::save_snapshots(store, &job.id.name, &settled, &job.tree.root(), job.record.as_ref()).await?;
    Ok(settled)
}

async fn run(
    job: &Job<BackupController>,
    store: &Store,
    begun: &Value,
    problems: Vec<String>,
    operations: &Arc<Operations>,
    stages: &Stages,
) -> Result<(BackedUp, Helpers), Error> {
    let planning = stages.start("planning");
    let spec = &job.subject.spec;
    let policies = || resource_policy::policies(&job.context, spec.resource_policy.as_ref());
    let policies = job.read(policies).await?.map_err(Error::Selection)?;
    let plan = backup::plan(
        &job.context.leader.cluster,
        |resources, namespaces| Selecting::for_backup(spec, policies.as_ref(), resources, namespaces),
        &planning,
    );
    let (mut plan, selecting) = job.unless_cancelled(plan).await?;
    let (limit, unread) =
        fs_backup::transfer_timeout(job.subject.annotations(), job.context.settings.fs_backup_timeout);
    plan.warnings.extend(unread);
    let selecting = Arc::new(selecting);
    let actions = || built_in(&job.context.leader.cluster, selecting.catalog());
    let mut actions = job.unless_cancelled(Patience::default().run(&planning, actions)).await?;
    let heard = Arc::new(Heard::default());
    let mut blocks = ItemBlockActions::default();
    let adding = plugins::add_backup_actions(&job.context, &mut actions, &mut blocks, &selecting, &heard);
    let added = Box::pin(job.unless_cancelled(async { Ok(adding.await) })).await?;
    let background = |action: &Arc<dyn BackupItemAction>| Arc::clone(action).background();
    let choose = || snapshotter::choose(&job.context.snapshots, spec);
    let locations =
        job.unless_cancelled(Patience::default().run(&planning, choose)).await?.map_err(Error::Selection)?;
    let policy =
        FsBackupPolicy::of(spec, policies.clone(), &selecting, job.context.settings.default_volumes_to_fs_backup);
    let mut wanting = wanting(job, begun, policy.clone(), &selecting, &heard, stages).await?;
    wanting.plugins = !locations.0.is_empty();
    let csi = CsiBackup::register(wanting, &mut actions, selecting.catalog())?;
    item_operations::cancel_abandoned(&job.journal_entries, &actions, background, begun, job.journal.as_ref()).await?;
    let taking = taking(job, locations, policies, &selecting, operations, &heard, stages);
    let snapshots = Arc::new(SnapshotBackup::new(taking));
    planning.finish();
    let run = BackupRun {
        name: job.id.name.clone(),
        backup: begun.clone(),
        cluster: job.context.leader.cluster.clone(),
        store: store.clone(),
        plan,
        hooks: HookRules::compile(spec.hooks.as_ref(), selecting.catalog())?,
        selecting,
        actions,
        blocks,
        operations: Arc::clone(operations),
        heard,
        volumes: Some(Arc::new(BackupVolumes {
            pods: volumes(job, begun, policy, limit, stages).await?,
            snapshots: Arc::clone(&snapshots),
            csi: csi.clone(),
        })),
        problems,
        reading: stages.start("reading"),
        saving: stages.planned("saving"),
        guard: Arc::clone(&job.record) as Arc<dyn Guard>,
        journal: Arc::clone(&job.journal) as Arc<dyn Journal>,
        cancel: job.cancel.clone(),
        scratch: job.scratch.path().to_owned(),
    };
    let helpers = Helpers { actions: added, snapshots, csi };
    match Box::pin(run.run()).await {
        Ok(done) => Ok((done, helpers)),
        Err(error) => {
            operations.cancel(begun).await;
            helpers.close().await;
            Err(error)
        }
    }
}

/// Who has CSI drivers take snapshots, as this Backup wants it.
async fn wanting(
    job: &Job<BackupController>,
    begun: &Value,
    policy: FsBackupPolicy,
    selecting: &Arc<Selecting>,
    heard: &Arc<Heard>,
    stages: &Stages,
) -> Result<CsiBackupParameters, Error> {
    let spec = &job.subject.spec;
    let limit = spec.csi_snapshot_timeout.as_ref().and_then(GoDuration::as_std);
    let task = stages.planned("volumes");
    let movement = match spec.snapshot_move_data {
        Some(true) => Some(DataMovement {
            location: begun.pointer("/spec/storageLocation").and_then(Value::as_str).unwrap_or_default().to_owned(),
            kind: job.context.settings.mover.resolve(&job.context.leader, &task).await?,
            mover: spec.data_mover.clone(),
            settings: settings(spec),
        }),
        _ => None,
    };
    Ok(CsiBackupParameters {
        services: Arc::clone(&job.context.transfers),
        job: volume_job(job, stages),
        backup: begun.clone(),
        wanted: spec.snapshot_volumes,
        plugins: false,
        selecting: Arc::clone(selecting),
        policy,
        limit: limit.filter(|limit| !limit.is_zero()).unwrap_or(CSI_LIMIT),
        movement,
        heard: Arc::clone(heard),
    })
}

/// Who takes snapshots, as this Backup wants it.
fn taking(
    job: &Job<BackupController>,
    locations: snapshotter::ChosenLocations,
    policies: Option<ResourcePolicies>,
    selecting: &Arc<Selecting>,
    operations: &Arc<Operations>,
    heard: &Arc<Heard>,
    stages: &Stages,
) -> SnapshotBackupParameters {
    let metadata = &job.subject.metadata;
    SnapshotBackupParameters {
        services: Arc::clone(&job.context.snapshots),
        job: volume_job(job, stages),
        created: metadata.creation_timestamp.clone().map_or(Timestamp::MIN, |time| time.0),
        labels: metadata.labels.clone().unwrap_or_default(),
        wanted: job.subject.spec.snapshot_volumes,
        policies,
        locations,
        selecting: Arc::clone(selecting),
        journal: Arc::clone(&job.journal) as Arc<dyn Journal>,
        known: job.journal_entries.clone(),
        operations: Arc::clone(operations),
        logs: plugins::lines(heard),
        limit: operation_limit(&job.subject.spec),
    }
}

/// The Backup, as whatever works on its volumes needs it.
fn volume_job(job: &Job<BackupController>, stages: &Stages) -> VolumeJob {
    VolumeJob {
        name: job.id.name.clone(),
        uid: job.id.uid.clone(),
        owner: job.id.owner(),
        task: stages.planned("volumes"),
    }
}

/// The settings of the mover in a Backup.
fn settings(spec: &BackupSpec) -> UploaderSettings {
    spec.uploader_config.as_ref().map(UploaderConfigForBackup::settings).unwrap_or_default()
}

/// Who backs up the volumes of pods, as this Backup wants it.
async fn volumes(
    job: &Job<BackupController>,
    begun: &Value,
    policy: FsBackupPolicy,
    limit: Duration,
    stages: &Stages,
) -> Result<FsBackup, Error> {
    FsBackup::new(FsBackupParameters {
        services: Arc::clone(&job.context.transfers),
        job: volume_job(job, stages),
        location: begun.pointer("/spec/storageLocation").and_then(Value::as_str).unwrap_or_default().to_owned(),
        policy,
        limit,
        settings: settings(&job.subject.spec),
    })
    .await
}

/// Writes the metadata, as the last file: from here on it is a backup.
async fn commit(
    job: &Job<BackupController>,
    store: &Store,
    begun: &Value,
    completion: &Completion,
    stages: &Stages,
) -> Result<(), Error> {
    let committing = stages.start("committing");
    let _waits = show_waits(store, &committing);
    let key = plimsoll_archive::layout::backup_metadata(&job.id.name);
    let intent = job.journal.intend(Effect::Commit { key }).await?;
    job.record.commit().await?;
    let metadata = metadata(begun, &job.tree.snapshot(), completion);
    let save = || backup::save_metadata(store, &job.id.name, &metadata);
    Patience::default().run(&committing, save).await?;
    job.journal.settle(intent, "committed".into()).await?;
    committing.finish();
    Ok(())
}

/// The Backup as it will stand in the cluster once it has ended.
fn metadata(begun: &Value, snapshot: &Snapshot, completion: &Completion) -> Value {
    let mut metadata = begun.clone();
    metadata["apiVersion"] = json!("velero.io/v1");
    metadata["kind"] = json!("Backup");
    let mut status = metadata["status"].clone();
    if let Some(fields) = status.as_object_mut() {
        fields.remove("plimsoll");
        fields.extend(
            projection::progress(snapshot, BackupController::ITEM_COUNTERS).as_object().cloned().unwrap_or_default(),
        );
        fields.extend(completion.status.as_object().cloned().unwrap_or_default());
    }
    metadata["status"] = status;
    metadata
}

/// Another program had written it and waited for the work of plugins, which is no longer followed.
fn left_waiting() -> Completion {
    let why = "another server left it waiting for operations of plugins: whether they ended well is not known";
    Completion {
        status: BackupController::failed_status(why),
        state: OperationState::Failed,
        reasons: Vec::new(),
        ending: None,
    }
}

/// A dead leader had committed already: what it wrote is how the backup ended.
fn adopt(metadata: &Value) -> Completion {
    let status = metadata.get("status").cloned().unwrap_or_default();
    if status["phase"].as_str().is_some_and(|phase| BackupController::state(phase) == SubjectState::InProgress) {
        return left_waiting();
    }
    let state = match status["phase"].as_str() {
        Some("PartiallyFailed") => OperationState::PartiallyFailed,
        _ => OperationState::Succeeded,
    };
    let ended = [
        "phase",
        "errors",
        "warnings",
        "completionTimestamp",
        "progress",
        "hookStatus",
        "volumeSnapshotsAttempted",
        "volumeSnapshotsCompleted",
        "csiVolumeSnapshotsAttempted",
        "csiVolumeSnapshotsCompleted",
        "backupItemOperationsAttempted",
        "backupItemOperationsCompleted",
        "backupItemOperationsFailed",
    ];
    let kept = ended.iter().filter_map(|field| Some(((*field).to_owned(), status.get(*field)?.clone())));
    Completion { status: Value::Object(kept.collect()), state, reasons: Vec::new(), ending: None }
}
