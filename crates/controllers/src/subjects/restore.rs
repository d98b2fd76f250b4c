//! Restore.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, ResourceExt};
use plimsoll_api::validate;
use plimsoll_api::velero::v1::{Backup, BackupPhase, Restore, RestorePhase};
use plimsoll_archive::layout;
use plimsoll_engine::outcome::Recorder;
use plimsoll_engine::ports::Guard;
use plimsoll_engine::restore::{self, Origin, RestorePlan, RestoreRun};
use plimsoll_engine::selection::Selecting;
use plimsoll_engine::{Error, Patience, kill};
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::Store;
use serde_json::{Value, json};

use super::unsupported;
use crate::context::Context;
use crate::decide::Stage;
use crate::floor::Shown;
use crate::location::{self, Found};
use crate::project;
use crate::subject::{Finished, Job, Kind, Needs};

/// The stages, and about how long they take for a few thousand objects: their weights in the percentage.
const STAGES: [(&str, Duration); 3] = [
    ("planning", Duration::from_secs(1)),
    ("restoring", Duration::from_secs(30)),
    ("saving", Duration::from_millis(500)),
];

/// What a later version carries out, and this one must not pretend to.
const UNSUPPORTED: [(&str, &str); 7] = [
    ("scheduleName", "restoring the latest backup of a schedule"),
    ("restorePVs", "restoring volumes from snapshots"),
    ("restoreStatus", "restoring status"),
    ("preserveNodePorts", "keeping node ports"),
    ("hooks.resources", "running hooks"),
    ("resourceModifier", "changing objects on their way"),
    ("resourcePolicy", "a resource policy"),
];

impl Kind for Restore {
    const VERB: &'static str = "restore";
    const SHOWN: Shown = Shown { stage: "restoring", done: "itemsRestored" };

    fn stage(phase: &str) -> Stage {
        match RestorePhase::from(phase) {
            RestorePhase::New => Stage::New,
            RestorePhase::Other(text) if text.is_empty() => Stage::New,
            RestorePhase::InProgress => Stage::Begun,
            phase if phase.is_ended() => Stage::Ended,
            _ => Stage::Other,
        }
    }

    fn faults(raw: &Value) -> Vec<String> {
        let mut faults = validate::check(raw).err().map(|invalid| invalid.lines()).unwrap_or_default();
        let spec = raw.get("spec").unwrap_or(&Value::Null);
        faults.extend(unsupported::faults(spec, &UNSUPPORTED));
        if spec.get("existingResourcePolicy").and_then(Value::as_str) == Some("update") {
            faults
                .push("spec.existingResourcePolicy: updating existing objects is not supported by this version".into());
        }
        faults
    }

    async fn needs(&self, context: &Context) -> Result<Needs, Error> {
        match find_backup(context, self).await? {
            Err(fault) => Ok(Needs { faults: vec![fault], missing: None }),
            Ok(backup) => Ok(match location::find(context, backup.spec.storage_location.as_deref()).await? {
                Found::Usable(_) => Needs::default(),
                Found::Unusable(fault) => Needs { faults: vec![fault], missing: None },
                Found::Unchecked(what) => Needs { faults: Vec::new(), missing: Some(what) },
            }),
        }
    }

    fn queued(_: usize) -> Option<Value> {
        None
    }

    async fn work(job: &Job<Self>) -> Result<Finished, Error> {
        let stages = job.plan_stages(&STAGES);
        begin(job).await?;
        let store = open_store(job).await?;
        let recorder = Arc::new(Recorder::create(job.scratch.path())?);
        let plan = job.unless_cancelled(make_plan(job, &store, &recorder, stages.begin("planning"))).await?;
        let restoring = announce_total(job, plan.total(), stages.begin("restoring")).await?;
        run(job, plan, restoring, &recorder).await?;
        save(job, &store, recorder, &stages.begin("saving")).await
    }

    /// What was created stays: it is counted, and the user decides about it.
    async fn give_up(_: &Job<Self>, _: &Error) {}
}

/// The backup to restore from; the inner error is the user's.
async fn find_backup(context: &Context, restore: &Restore) -> Result<Result<Backup, String>, Error> {
    let name = restore.spec.backup_name.clone().unwrap_or_default();
    let api: Api<Backup> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let found = api.get_opt(&name).await.map_err(|e| Error::api(format!("read backup {name}"), e))?;
    Ok(match found {
        None => Err(format!("spec.backupName: there is no backup {name}")),
        Some(backup) => match backup.phase() {
            BackupPhase::Completed | BackupPhase::PartiallyFailed => Ok(backup),
            phase => Err(format!("spec.backupName: backup {name} is {phase}, it cannot be restored from")),
        },
    })
}

/// The first write: phase and start. Done again by every attempt, with the same result.
async fn begin(job: &Job<Restore>) -> Result<(), Error> {
    let started = job.subject.status.as_ref().and_then(|status| status.start_timestamp.clone());
    let started = started.map_or_else(Timestamp::now, |time| time.0);
    let patch = json!({ "status": { "phase": "InProgress", "startTimestamp": format!("{started:.0}") } });
    kill::point("status.begin.before");
    job.write(&patch).await?;
    kill::point("status.begin.after");
    Ok(())
}

async fn open_store(job: &Job<Restore>) -> Result<Store, Error> {
    let backup = find_backup(&job.context, &job.subject).await?.map_err(Error::Selection)?;
    match location::find(&job.context, backup.spec.storage_location.as_deref()).await? {
        Found::Usable(found) => location::open(&found, &job.context).await,
        Found::Unusable(why) | Found::Unchecked(why) => Err(Error::Selection(why)),
    }
}

async fn make_plan(
    job: &Job<Restore>,
    store: &Store,
    recorder: &Arc<Recorder>,
    planning: Task,
) -> Result<RestorePlan, Error> {
    let key = layout::backup_contents(job.subject.spec.backup_name.as_deref().unwrap_or_default());
    planning.say("discovering resources");
    let discovered = Patience::default().run(&planning, || job.context.cluster.discover()).await?;
    let selecting = Arc::new(Selecting::for_restore(&job.subject.spec, None, &discovered.resources)?);
    let plan = restore::plan(store, &key, selecting, job.scratch.path(), Arc::clone(recorder), &planning).await?;
    recorder.log().info(format!("{} items selected, {} excluded by filters", plan.total(), plan.excluded));
    planning.finish();
    Ok(plan)
}

/// The total is known, and written, before the first object is created.
async fn announce_total(job: &Job<Restore>, total: u64, restoring: Task) -> Result<Task, Error> {
    restoring.meter(Unit::Items).set_total(Total::Final(total));
    kill::point("restore.total.before");
    job.write(&json!({ "status": project::progress(&job.tree.snapshot(), Restore::SHOWN) })).await?;
    kill::point("restore.total.after");
    Ok(restoring)
}

async fn run(job: &Job<Restore>, plan: RestorePlan, restoring: Task, recorder: &Arc<Recorder>) -> Result<(), Error> {
    let created = job.subject.metadata.creation_timestamp.clone().map_or(Timestamp::MIN, |time| time.0);
    let run = RestoreRun {
        cluster: job.context.cluster.clone(),
        origin: Origin {
            restore: job.subject.name_any(),
            created,
            backup: job.subject.spec.backup_name.clone().unwrap_or_default(),
            namespaces: job.subject.spec.namespace_mapping.clone(),
        },
        plan,
        task: restoring.clone(),
        guard: Arc::clone(&job.record) as Arc<dyn Guard>,
        cancel: job.cancel.clone(),
        recorder: Arc::clone(recorder),
    };
    run.run().await?;
    restoring.finish();
    Ok(())
}

async fn save(job: &Job<Restore>, store: &Store, recorder: Arc<Recorder>, saving: &Task) -> Result<Finished, Error> {
    let recorder = Arc::into_inner(recorder).ok_or_else(|| {
        Error::scratch(job.scratch.path(), std::io::Error::other("the recorder is still in use after restoring"))
    })?;
    let recorded = recorder.finish()?;
    restore::save(store, &job.id.name, &recorded, saving, job.record.as_ref()).await?;
    saving.finish();
    job.record.commit().await?;
    Ok(Finished::with(&recorded.results))
}
