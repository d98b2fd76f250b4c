//! Restore.

pub mod files;
mod source;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::go::GoDuration;
use plimsoll_api::velero::v1::{
    Backup, PodVolumeBackup, PodVolumeRestore, Restore, RestorePhase, RestoreSpec, UploaderConfigForRestore,
    UploaderSettings,
};
use plimsoll_api::velero::v2alpha1::DataDownload;
use plimsoll_api::{labels, validate};
use plimsoll_archive::layout;
use plimsoll_archive::volume_info::RestoreVolumeInfo;
use plimsoll_engine::operations::{Operations, Owner};
use plimsoll_engine::outcome::{Recorder, Scope};
use plimsoll_engine::ports::{Effect, Guard, Journal, SnapshotVolumes, VolumeData};
use plimsoll_engine::restore::action::RestoreItemAction;
use plimsoll_engine::restore::actions::{Actions, Surroundings, register_built_ins};
use plimsoll_engine::restore::hooks::{Earlier, HookCounts, HookSetting, PodHooks, RestoreHooks};
use plimsoll_engine::restore::{self, ExistingPolicy, Inner, Limits, Origin, RestorePlan, RestoreRun, Rules, Volumes};
use plimsoll_engine::selection::Selecting;
use plimsoll_engine::{Error, Heard, Patience, kill, show_waits};
use plimsoll_operations::{Completion, ItemCounters, Job, Lifecycle, Requirements, Stages, SubjectState, projection};
use plimsoll_plugin::PluginActions;
use plimsoll_progress::{Task, Unit};
use plimsoll_select::includes::IncludesExcludes;
use plimsoll_select::resource_modifiers::ResourceModifiers;
use plimsoll_select::resource_order::NON_RESTORABLE_RESOURCES;
use plimsoll_select::resource_policies::ResourcePolicies;
use plimsoll_select::resources::{DiscoveredResources, ResourceMapper};
use plimsoll_store::Store;
use plimsoll_volumes::VolumeJob;
use plimsoll_volumes::csi::{self, CsiRestore, CsiRestoreParameters};
use plimsoll_volumes::fs_backup::{self, FsRestore, FsRestoreParameters};
use plimsoll_volumes::snapshotter::{SnapshotRestore, SnapshotRestoreParameters};
use plimsoll_volumes::storage_location::LocationLookup;
use serde_json::{Value, json};

use self::source::find_backup;
use crate::context::Context;
use crate::{completion, item_operations, plugins, resource_policy};

/// The stages, and about how long they take for a few thousand objects: their weights in the percentage.
const STAGES: [(&str, Duration); 5] = [
    ("planning", Duration::from_secs(1)),
    ("restoring", Duration::from_secs(30)),
    // More, once there are any.
    ("volumes", Duration::from_millis(100)),
    ("finalizing", Duration::from_millis(500)),
    ("saving", Duration::from_millis(500)),
];

/// How long work in the background may take where a Restore does not say.
const OPERATION_LIMIT: Duration = Duration::from_hours(4);

/// The lifecycle of a Restore.
pub struct RestoreController;

impl Lifecycle for RestoreController {
    type Resource = Restore;
    type Context = Context;
    type LiveState = ();
    const VERB: &'static str = "restore";
    const ITEM_COUNTERS: ItemCounters = ItemCounters { stage: "restoring", done: "itemsRestored" };
    const FINALIZER: Option<&'static str> = Some(labels::RESTORE_FINALIZER);

    fn state(phase: &str) -> SubjectState {
        match RestorePhase::from(phase) {
            RestorePhase::New => SubjectState::New,
            RestorePhase::Other(text) if text.is_empty() => SubjectState::New,
            RestorePhase::InProgress
            | RestorePhase::WaitingForPluginOperations
            | RestorePhase::WaitingForPluginOperationsPartiallyFailed
            | RestorePhase::Finalizing
            | RestorePhase::FinalizingPartiallyFailed => SubjectState::InProgress,
            phase if phase.is_ended() => SubjectState::Ended,
            _ => SubjectState::Unmanaged,
        }
    }

    fn validate(raw: &Value) -> Vec<String> {
        let mut faults = validate::check(raw).err().map(|invalid| invalid.lines()).unwrap_or_default();
        let included = raw.pointer("/spec/includedResources").and_then(Value::as_array).into_iter().flatten();
        let never = included.filter_map(Value::as_str).filter(|name| NON_RESTORABLE_RESOURCES.contains(name));
        faults.extend(never.map(|name| format!("spec.includedResources: {name} are never restored")));
        faults
    }

    async fn check_requirements(subject: &Restore, context: &Context) -> Result<Requirements, Error> {
        let mut needs = match find_backup(context, subject).await? {
            Err(fault) => Requirements { faults: vec![fault], missing: None },
            Ok(backup) => match context.storage.find(backup.spec.storage_location.as_deref()).await? {
                LocationLookup::Usable(_) => Requirements::default(),
                LocationLookup::Unusable(fault) => Requirements { faults: vec![fault], missing: None },
                LocationLookup::Unchecked(what) => Requirements { faults: Vec::new(), missing: Some(what) },
            },
        };
        needs.faults.extend(Told::read(context, &subject.spec).await?.err());
        Ok(needs)
    }

    fn concurrency(context: &Context) -> usize {
        context.settings.concurrency
    }

    fn queued_status(_: usize) -> Option<Value> {
        None
    }

    async fn execute(job: &Job<Self>) -> Result<Completion, Error> {
        let stages = job.plan_stages(&STAGES);
        let backup = job.read(|| find_backup(&job.context, &job.subject)).await?;
        let mut backup = backup.map_err(Error::Selection)?;
        let begun = begin(job, &backup).await?;
        let (location, store) = job.read(|| open_location(job, &backup)).await?;
        // One that is left to the default has a name from here on.
        backup.spec.storage_location = Some(location);
        let recorder = Arc::new(Recorder::create(job.scratch.path())?);
        let heard = Arc::new(Heard::default());
        heard.attach(&recorder);
        let plugins = Plugins { heard: Arc::clone(&heard), ..Plugins::default() };
        let prepared = prepare(job, &store, &begun, &backup, &recorder, &plugins, &stages);
        let run = job.unless_cancelled(prepared).await?;
        announce_total(job, &run).await?;
        let operations = Arc::clone(&run.operations);
        if let Err(error) = run.run().await {
            operations.cancel(&begun).await;
            plugins.close().await;
            return Err(error);
        }
        run.task.finish();
        let mut volumes = job.unless_cancelled(finish_volumes(&run, &recorder, &stages)).await?;
        volumes.extend(plugins.snapshots.get().map(|snapshots| snapshots.infos()).unwrap_or_default());
        let waited = wait_for_operations(job, &store, &begun, &operations, recorder.counts().0 > 0).await;
        plugins.close().await;
        waited?;
        volumes.extend(plugins.csi.get().map(|csi| csi.infos()).unwrap_or_default());
        let hooks = job.unless_cancelled(finalize(job, &run, &recorder, &stages.start("finalizing"))).await?;
        drop(run);
        heard.detach();
        let mut completion =
            save(job, &store, recorder, (hooks, &volumes), &operations, &stages.start("saving")).await?;
        completion::add_item_operations(&mut completion, Self::VERB, &operations);
        Ok(completion)
    }

    /// What was created stays: it is counted, and the user decides about it. What still moves is stopped.
    async fn abort(job: &Job<Self>, _: &Error) {
        let own = format!("{}={}", labels::RESTORE_UID, job.id.uid);
        fs_backup::cancel_transfers::<PodVolumeRestore>(&job.context.leader, &own, &job.tree.root()).await;
        fs_backup::cancel_transfers::<DataDownload>(&job.context.leader, &own, &job.tree.root()).await;
    }
}

/// What a Restore says in other objects than itself, and in parts that are compiled.
struct Told {
    policies: Option<ResourcePolicies>,
    modifiers: Option<ResourceModifiers>,
    hooks: RestoreHooks,
}

impl Told {
    /// Reads it; the inner error is the user's.
    async fn read(context: &Context, spec: &RestoreSpec) -> Result<Result<Self, String>, Error> {
        let policies = match resource_policy::policies(context, spec.resource_policy.as_ref()).await? {
            Ok(policies) => policies,
            Err(fault) => return Ok(Err(fault)),
        };
        if let Some(Err(error)) = policies.as_ref().map(ResourcePolicies::validate_for_restore) {
            return Ok(Err(format!("spec.resourcePolicy: {error}")));
        }
        let modifiers = match modifiers(context, spec).await? {
            Ok(modifiers) => modifiers,
            Err(fault) => return Ok(Err(fault)),
        };
        Ok(match (RestoreHooks::new(spec), Selecting::for_restore(spec, policies.as_ref(), &[])) {
            (Ok(hooks), Ok(_)) => Ok(Self { policies, modifiers, hooks }),
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        })
    }
}

/// The rules of `resourceModifier`; the inner error is the user's.
async fn modifiers(context: &Context, spec: &RestoreSpec) -> Result<Result<Option<ResourceModifiers>, String>, Error> {
    const FIELD: &str = "spec.resourceModifier";
    let Some(reference) = &spec.resource_modifier else { return Ok(Ok(None)) };
    let data = resource_policy::config_map(context, FIELD, reference).await?;
    Ok(data.and_then(|data| {
        let read = ResourceModifiers::from_config_map(&data);
        read.map(Some).map_err(|error| format!("{FIELD}: ConfigMap {}: {error}", reference.name))
    }))
}

/// The first write: phase, start, and what was left to defaults. Done again by every attempt, with the same result.
async fn begin(job: &Job<RestoreController>, backup: &Backup) -> Result<Value, Error> {
    let (spec, status) = (&job.subject.spec, job.subject.status.clone().unwrap_or_default());
    let started = status.start_timestamp.map_or_else(Timestamp::now, |time| time.0);
    let phase = match status.phase {
        Some(phase @ (RestorePhase::Finalizing | RestorePhase::FinalizingPartiallyFailed)) => phase,
        _ => RestorePhase::InProgress,
    };
    let mut excluded = spec.excluded_resources.clone();
    excluded.extend(
        NON_RESTORABLE_RESOURCES
            .iter()
            .map(|name| (*name).to_owned())
            .filter(|name| !spec.excluded_resources.contains(name)),
    );
    let patch = json!({
        "spec": { "backupName": backup.name_any(), "excludedResources": excluded },
        "status": { "phase": phase.as_str(), "startTimestamp": format!("{started:.0}") },
    });
    kill::point("status.begin.before");
    let begun = job.patch_subject(&patch).await?;
    kill::point("status.begin.after");
    Ok(begun)
}

/// The backup's location: its name in this cluster, and what is in it.
async fn open_location(job: &Job<RestoreController>, backup: &Backup) -> Result<(String, Store), Error> {
    match job.context.storage.find(backup.spec.storage_location.as_deref()).await? {
        LocationLookup::Usable(found) => Ok((found.name_any(), job.context.storage.open(&found).await?)),
        LocationLookup::Unusable(why) | LocationLookup::Unchecked(why) => Err(Error::Selection(why)),
    }
}

/// The first step: what the Restore says, and the plan.
async fn prepare(
    job: &Job<RestoreController>,
    store: &Store,
    begun: &Value,
    backup: &Backup,
    recorder: &Arc<Recorder>,
    plugins: &Plugins,
    stages: &Stages,
) -> Result<RestoreRun, Error> {
    let planning = stages.start("planning");
    let _waits = show_waits(store, &planning);
    planning.say("discovering resources");
    let spec = &job.subject.spec;
    let told = job.read(|| Told::read(&job.context, spec)).await?.map_err(Error::Selection)?;
    let discovered = Patience::default().run(&planning, || job.context.leader.cluster.discover()).await?;
    let selecting = Arc::new(Selecting::for_restore(spec, told.policies.as_ref(), &discovered.resources)?);
    let hooks = Arc::new(told.hooks);
    let mut actions = job.read(|| built_ins(job, &hooks, &selecting)).await?;
    let csi = csi::register_restore(restoring(job, backup, stages), &mut actions, selecting.catalog())?;
    let _ = plugins.csi.set(Arc::clone(&csi));
    plugins.add(job, &mut actions, &selecting, begun).await?;
    let volumes = Volumes::read(store, &backup.name_any(), spec.restore_pvs).await?.with_csi(csi.knows_snapshots());
    let (limit, unread) =
        fs_backup::transfer_timeout(job.subject.annotations(), job.context.settings.fs_backup_timeout);
    if let Some(warning) = unread {
        recorder.warn(&Scope::Operation, warning);
    }
    let files = files_to_restore(&volumes, &selecting, recorder);
    let data = volume_data(job, backup, files, limit, &mut actions, selecting.catalog(), stages)?;
    let operations = Arc::new(Operations::new(Arc::clone(&job.journal) as Arc<dyn Journal>));
    let snapshots = from_snapshots(job, backup, &volumes, &operations, plugins, stages);
    let plan = make_plan(job, store, backup, &selecting, &actions, recorder, &planning).await?;
    let rules = Rules {
        status: status_filter(spec, &selecting)?,
        resources: discovered.resources,
        restore: begun.clone(),
        existing: existing_policy(spec),
        modifiers: told.modifiers,
        hooks: Arc::new(PodHooks::new(hooks, hook_setting(job, stages))),
        limits: limits(job),
        selecting,
        actions,
        volumes,
        data,
        snapshots,
    };
    planning.finish();
    Ok(assemble(job, plan, rules, backup, recorder, operations, stages.start("restoring")))
}

/// What this Restore wants of CSI snapshots.
fn restoring(job: &Job<RestoreController>, backup: &Backup, stages: &Stages) -> CsiRestoreParameters {
    CsiRestoreParameters {
        services: Arc::clone(&job.context.transfers),
        job: volume_job(job, stages),
        namespaces: job.subject.spec.namespace_mapping.clone(),
        location: backup.spec.storage_location.clone().unwrap_or_default(),
        with_data: job.subject.spec.restore_pvs != Some(false),
        limit: job.context.settings.resource_timeout,
        settings: settings(&job.subject.spec),
    }
}

/// The settings of the mover in a Restore.
fn settings(spec: &RestoreSpec) -> UploaderSettings {
    spec.uploader_config.as_ref().map(UploaderConfigForRestore::settings).unwrap_or_default()
}

/// Who makes volumes from the snapshots of plugins, where the backup has any.
fn from_snapshots(
    job: &Job<RestoreController>,
    backup: &Backup,
    volumes: &Volumes,
    operations: &Arc<Operations>,
    plugins: &Plugins,
    stages: &Stages,
) -> Option<Arc<dyn SnapshotVolumes>> {
    if volumes.native().is_empty() {
        return None;
    }
    let making = SnapshotRestoreParameters {
        services: Arc::clone(&job.context.snapshots),
        job: volume_job(job, stages),
        created: job.subject.metadata.creation_timestamp.clone().map_or(Timestamp::MIN, |time| time.0),
        backup: backup.name_any(),
        snapshots: volumes.native().to_vec(),
        journal: Arc::clone(&job.journal) as Arc<dyn Journal>,
        known: job.journal_entries.clone(),
        operations: Arc::clone(operations),
        heard: Arc::clone(&plugins.heard),
        logs: plugins::lines(&plugins.heard),
        limit: operation_limit(&job.subject.spec),
    };
    let made = Arc::new(SnapshotRestore::new(making));
    let _ = plugins.snapshots.set(Arc::clone(&made));
    Some(made)
}

/// The backups of files that are restored. Where claims are left out, those of claims are not: they would be written over whatever
/// the claim of that name holds now.
fn files_to_restore(volumes: &Volumes, selecting: &Selecting, recorder: &Recorder) -> Vec<PodVolumeBackup> {
    let why = |backup: &PodVolumeBackup| match volumes.restores_data() {
        false => Some("spec.restorePVs is false"),
        true if !selecting.claims() && fs_backup::is_of_claim(backup) => {
            Some("the restore leaves persistentvolumeclaims out")
        }
        true => None,
    };
    let mut files = Vec::new();
    for backup in volumes.files() {
        let Some(why) = why(backup) else {
            files.push(backup.clone());
            continue;
        };
        let pod = backup.spec.pod.clone().unwrap_or_default();
        let (namespace, pod) = (pod.namespace.unwrap_or_default(), pod.name.unwrap_or_default());
        if selecting.pods_of(&namespace) {
            let volume = backup.spec.volume.as_deref().unwrap_or_default();
            let line = format!("the files of volume {namespace}/{pod}/{volume} are not restored: {why}");
            recorder.warn(&Scope::Namespace(namespace), line);
        }
    }
    files
}

/// Who restores the data of pods' volumes, where the backup has any.
fn volume_data(
    job: &Job<RestoreController>,
    backup: &Backup,
    files: Vec<PodVolumeBackup>,
    limit: Duration,
    actions: &mut Actions,
    catalog: &DiscoveredResources,
    stages: &Stages,
) -> Result<Option<Arc<dyn VolumeData>>, Error> {
    let source = FsRestoreParameters {
        services: Arc::clone(&job.context.transfers),
        helper: job.context.settings.restore_helper.clone(),
        job: volume_job(job, stages),
        backups: files,
        location: backup.spec.storage_location.clone().unwrap_or_default(),
        namespaces: job.subject.spec.namespace_mapping.clone(),
        limit,
        settings: settings(&job.subject.spec),
    };
    let data = FsRestore::register(source, actions, catalog)?;
    Ok(data.map(|data| Arc::new(data) as Arc<dyn VolumeData>))
}

/// Waits for the data of volumes. What went wrong with one is an error of the restore.
async fn finish_volumes(
    run: &RestoreRun,
    recorder: &Recorder,
    stages: &Stages,
) -> Result<Vec<RestoreVolumeInfo>, Error> {
    let task = stages.planned("volumes");
    let Some(data) = &run.rules.data else {
        task.finish();
        return Ok(Vec::new());
    };
    let done = data.finish().await?;
    for (namespace, error) in &done.errors {
        recorder.error(&Scope::Namespace(namespace.clone()), error);
    }
    for (namespace, warning) in done.warnings {
        recorder.warn(&Scope::Namespace(namespace), warning);
    }
    Ok(done.infos)
}

async fn make_plan(
    job: &Job<RestoreController>,
    store: &Store,
    backup: &Backup,
    selecting: &Arc<Selecting>,
    actions: &Actions,
    recorder: &Arc<Recorder>,
    planning: &Task,
) -> Result<RestorePlan, Error> {
    let key = layout::backup_contents(&backup.name_any());
    let (selecting, recorder_too) = (Arc::clone(selecting), Arc::clone(recorder));
    let plan = restore::plan(store, &key, selecting, actions, job.scratch.path(), recorder_too, planning).await?;
    recorder.log().info(format!("{} items selected, {} excluded by filters", plan.total(), plan.excluded));
    Ok(plan)
}

fn assemble(
    job: &Job<RestoreController>,
    plan: RestorePlan,
    rules: Rules,
    backup: &Backup,
    recorder: &Arc<Recorder>,
    operations: Arc<Operations>,
    restoring: Task,
) -> RestoreRun {
    let origin = Origin {
        restore: job.subject.name_any(),
        created: job.subject.metadata.creation_timestamp.clone().map_or(Timestamp::MIN, |time| time.0),
        backup: backup.name_any(),
        namespaces: job.subject.spec.namespace_mapping.clone(),
    };
    RestoreRun {
        cluster: job.context.leader.cluster.clone(),
        origin,
        inner: Inner::new(&plan, &restoring),
        plan,
        rules,
        task: restoring,
        guard: Arc::clone(&job.record) as Arc<dyn Guard>,
        cancel: job.cancel.clone(),
        recorder: Arc::clone(recorder),
        operations,
    }
}

/// The plugins of one restore.
#[derive(Default)]
struct Plugins {
    heard: Arc<Heard>,
    actions: OnceLock<PluginActions>,
    snapshots: OnceLock<Arc<SnapshotRestore>>,
    csi: OnceLock<Arc<CsiRestore>>,
}

impl Plugins {
    async fn add(
        &self,
        job: &Job<RestoreController>,
        actions: &mut Actions,
        with: &Selecting,
        begun: &Value,
    ) -> Result<(), Error> {
        let added = plugins::add_restore_actions(&job.context, actions, with.catalog(), &self.heard).await;
        let background = |action: &Arc<dyn RestoreItemAction>| Arc::clone(action).background();
        item_operations::cancel_abandoned(&job.journal_entries, actions, background, begun, job.journal.as_ref())
            .await?;
        let _ = self.actions.set(added);
        Ok(())
    }

    async fn close(&self) {
        if let Some(actions) = self.actions.get() {
            actions.close().await;
        }
        if let Some(snapshots) = self.snapshots.get() {
            snapshots.close().await;
        }
    }
}

/// Work that item actions began in the background ends before the restore does.
async fn wait_for_operations(
    job: &Job<RestoreController>,
    store: &Store,
    begun: &Value,
    operations: &Operations,
    failed: bool,
) -> Result<(), Error> {
    if operations.is_empty() {
        return Ok(());
    }
    let key = layout::restore_item_operations(&job.id.name);
    let phase = if failed { "WaitingForPluginOperationsPartiallyFailed" } else { "WaitingForPluginOperations" };
    item_operations::wait_for_operations(job, store, &key, begun, operations, phase, operation_limit(&job.subject.spec))
        .await
}

fn operation_limit(spec: &RestoreSpec) -> Duration {
    let limit = spec.item_operation_timeout.as_ref().and_then(GoDuration::as_std);
    limit.filter(|limit| !limit.is_zero()).unwrap_or(OPERATION_LIMIT)
}

async fn built_ins(
    job: &Job<RestoreController>,
    hooks: &Arc<RestoreHooks>,
    selecting: &Selecting,
) -> Result<Actions, Error> {
    let mut actions = Actions::default();
    let surroundings = Surroundings {
        cluster: &job.context.leader.cluster,
        home: &job.context.leader.namespace,
        restore: &job.subject,
        hooks: Arc::clone(hooks),
    };
    register_built_ins(&mut actions, &surroundings, selecting.catalog()).await?;
    Ok(actions)
}

fn existing_policy(spec: &RestoreSpec) -> ExistingPolicy {
    match spec.existing_resource_policy.as_deref() {
        Some("update") => ExistingPolicy::Update,
        _ => ExistingPolicy::None,
    }
}

/// The resources whose status is restored; none if the Restore does not speak of status.
fn status_filter(spec: &RestoreSpec, selecting: &Selecting) -> Result<Option<IncludesExcludes>, Error> {
    let Some(status) = &spec.restore_status else { return Ok(None) };
    let resolve = |names: &[String]| -> Vec<String> {
        let group_resource = |name: &String| selecting.catalog().resolve(name).map(|found| found.group_resource);
        names.iter().map(|name| group_resource(name).unwrap_or_else(|| name.clone())).collect()
    };
    let filter = IncludesExcludes::new(&resolve(&status.included_resources), &resolve(&status.excluded_resources));
    filter.map(Some).map_err(|error| Error::Selection(format!("spec.restoreStatus: {error}")))
}

fn limits(job: &Job<RestoreController>) -> Limits {
    let settings = &job.context.settings;
    Limits { resource: settings.resource_timeout, terminating: settings.terminating_timeout, ..Limits::default() }
}

fn hook_setting(job: &Job<RestoreController>, stages: &Stages) -> HookSetting {
    let hooks = job.journal_entries.iter().filter(|known| matches!(known.effect, Effect::Hooks { .. }));
    HookSetting {
        cluster: job.context.leader.cluster.clone(),
        journal: Arc::clone(&job.journal) as Arc<dyn Journal>,
        guard: Arc::clone(&job.record) as Arc<dyn Guard>,
        task: stages.planned("finalizing"),
        earlier: hooks.map(|known| Earlier { effect: known.effect.clone(), result: known.result.clone() }).collect(),
        wait: job.context.settings.resource_timeout,
    }
}

/// The total is known, and written, before the first object is created.
async fn announce_total(job: &Job<RestoreController>, run: &RestoreRun) -> Result<(), Error> {
    run.task.meter(Unit::Items).set_total(run.plan.opening_total(&run.rules.actions));
    kill::point("restore.total.before");
    job.patch_subject(
        &json!({ "status": projection::progress(&job.tree.snapshot(), RestoreController::ITEM_COUNTERS) }),
    )
    .await?;
    kill::point("restore.total.after");
    Ok(())
}

/// Everything is there; what runs in restored pods has yet to end.
async fn finalize(
    job: &Job<RestoreController>,
    run: &RestoreRun,
    recorder: &Recorder,
    finalizing: &Task,
) -> Result<HookCounts, Error> {
    let phase = match recorder.counts().0 {
        0 => RestorePhase::Finalizing,
        _ => RestorePhase::FinalizingPartiallyFailed,
    };
    kill::point("status.finalizing.before");
    job.patch_subject(&json!({ "status": { "phase": phase.as_str() } })).await?;
    kill::point("status.finalizing.after");
    let counts = run.rules.hooks.finish().await?;
    finalizing.finish();
    Ok(counts)
}

async fn save(
    job: &Job<RestoreController>,
    store: &Store,
    recorder: Arc<Recorder>,
    (hooks, volumes): (HookCounts, &[RestoreVolumeInfo]),
    operations: &Operations,
    saving: &Task,
) -> Result<Completion, Error> {
    let recorder = Arc::into_inner(recorder).ok_or_else(|| {
        Error::scratch(job.scratch.path(), std::io::Error::other("the recorder is still in use after restoring"))
    })?;
    let recorded = recorder.finish()?;
    restore::save(store, &job.id.name, &recorded, volumes, saving, job.record.as_ref()).await?;
    if !operations.is_empty() {
        let owner = Owner { verb: RestoreController::VERB, name: &job.id.name, uid: &job.id.uid };
        let key = layout::restore_item_operations(&job.id.name);
        item_operations::save_operations(store, &key, operations, owner, saving).await?;
    }
    saving.finish();
    job.record.commit().await?;
    let mut completion = completion::of(&recorded.results);
    if hooks.attempted > 0 {
        completion.status["hookStatus"] = json!({ "hooksAttempted": hooks.attempted, "hooksFailed": hooks.failed });
    }
    Ok(completion)
}

/// The Restore, as whatever works on its volumes needs it.
fn volume_job(job: &Job<RestoreController>, stages: &Stages) -> VolumeJob {
    VolumeJob {
        name: job.id.name.clone(),
        uid: job.id.uid.clone(),
        owner: job.id.owner(),
        task: stages.planned("volumes"),
    }
}
