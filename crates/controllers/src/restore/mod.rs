//! Restore.

pub mod files;
mod finish;
mod plugins;
mod prepare;
mod resolved_spec;
mod source;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::velero::v1::{Backup, PodVolumeRestore, Restore, RestorePhase};
use plimsoll_api::velero::v2alpha1::DataDownload;
use plimsoll_api::{labels, validate};
use plimsoll_engine::outcome::Recorder;
use plimsoll_engine::restore::RestoreRun;
use plimsoll_engine::{Error, PluginLogSink, kill};
use plimsoll_operations::{Completion, ItemCounters, Job, Lifecycle, Requirements, SubjectState, projection};
use plimsoll_progress::Unit;
use plimsoll_select::resource_order::NON_RESTORABLE_RESOURCES;
use plimsoll_store::Store;
use plimsoll_volumes::fs_backup;
use plimsoll_volumes::storage_location::LocationLookup;
use serde_json::{Value, json};

use self::finish::{finalize, save, wait_for_operations};
use self::plugins::RestorePlugins;
use self::prepare::prepare;
use self::resolved_spec::ResolvedSpec;
use self::source::find_backup;
use self::volumes::finish_volumes;
use crate::completion;
use crate::context::Context;

/// The stages, and about how long they take for a few thousand objects: their weights in the percentage.
const STAGES: [(&str, Duration); 5] = [
    ("planning", Duration::from_secs(1)),
    ("restoring", Duration::from_secs(30)),
    // More, once there are any.
    ("volumes", Duration::from_millis(100)),
    ("finalizing", Duration::from_millis(500)),
    ("saving", Duration::from_millis(500)),
];

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
        needs.faults.extend(ResolvedSpec::read(context, &subject.spec).await?.err());
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
        let plugin_log = Arc::new(PluginLogSink::default());
        plugin_log.attach(&recorder);
        let plugins = RestorePlugins { plugin_log: Arc::clone(&plugin_log), ..RestorePlugins::default() };
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
        plugin_log.detach();
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

/// The total is known, and written, before the first object is created.
async fn announce_total(job: &Job<RestoreController>, run: &RestoreRun) -> Result<(), Error> {
    run.task.meter(Unit::Items).set_total(run.plan.initial_total(&run.rules.actions));
    kill::point("restore.total.before");
    job.patch_subject(
        &json!({ "status": projection::progress(&job.tree.snapshot(), RestoreController::ITEM_COUNTERS) }),
    )
    .await?;
    kill::point("restore.total.after");
    Ok(())
}
