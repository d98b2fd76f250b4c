//! Schedule: creates Backups when its cron expression is due.

mod decide;
mod submit;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{Backup, BackupPhase, Schedule, SchedulePhase};
use plimsoll_engine::Error;
use plimsoll_operations::controller::{duration_until, run_controller};
use plimsoll_operations::{EventType, LeaderClient};
use serde_json::{Value, json};

use self::decide::{Decision, Observed, decide};
use self::submit::submit;
use self::validate::validate_schedule;

/// Maximum interval between checks of a schedule: clocks may jump.
const MAX_POLL_INTERVAL: Duration = Duration::from_mins(1);

/// Interval between checks while a backup of the schedule is in progress.
const BUSY_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Context of the controller.
pub struct ScheduleContext {
    pub leader: LeaderClient,
    /// The default of `skipImmediately`.
    pub skip_immediately: bool,
}

/// Runs the controller until the future is dropped.
pub async fn control(context: Arc<ScheduleContext>) {
    run_controller::<Schedule, _, _, _>(&context.leader, Arc::clone(&context), reconcile).await;
}

async fn reconcile(schedule: Arc<Schedule>, context: Arc<ScheduleContext>) -> Result<Action, Error> {
    if schedule.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let (faults, cron) = validate_schedule(&schedule);
    let backups = backups_of(&schedule, &context).await?;
    let now = Timestamp::now();
    let decision = decide(&observe(&schedule, faults.clone(), &backups, &context), cron.as_ref(), now);
    write_phase(&schedule, &faults, &context).await?;
    match decision {
        Decision::Refuse => Ok(Action::await_change()),
        Decision::Skip => skip(&schedule, now, &context).await.map(|()| Action::requeue(BUSY_POLL_INTERVAL)),
        Decision::Wait(None) => Ok(Action::requeue(MAX_POLL_INTERVAL)),
        Decision::Wait(Some(next)) => Ok(Action::requeue(pause(next, now))),
        Decision::Hold(busy) => {
            let message = format!("a backup is due, and {busy} has not ended");
            context.leader.events.record(&schedule.object_ref(&()), EventType::Normal, "BackupHeld", &message).await;
            Ok(Action::requeue(BUSY_POLL_INTERVAL))
        }
        Decision::Submit(due) => {
            submit(&schedule, due, now, &backups, &context).await?;
            Ok(Action::requeue(BUSY_POLL_INTERVAL))
        }
    }
}

fn pause(next: Timestamp, now: Timestamp) -> Duration {
    (duration_until(next, now) + Duration::from_millis(50)).min(MAX_POLL_INTERVAL)
}

fn observe(schedule: &Schedule, faults: Vec<String>, backups: &[Backup], context: &ScheduleContext) -> Observed {
    let status = schedule.status.clone().unwrap_or_default();
    let time = |time: Option<Time>| time.map(|time| time.0);
    Observed {
        faults,
        created: time(schedule.creation_timestamp()).unwrap_or(Timestamp::UNIX_EPOCH),
        last_backup: time(status.last_backup),
        last_skipped: time(status.last_skipped),
        paused: schedule.spec.paused == Some(true),
        skip: schedule.spec.skip_immediately.unwrap_or(context.skip_immediately)
            // The server's own default counts once, at the beginning.
            && (schedule.spec.skip_immediately.is_some() || status.phase.is_none()),
        busy: backups.iter().find(|backup| is_pending(&backup.phase())).map(ResourceExt::name_any),
    }
}

fn is_pending(phase: &BackupPhase) -> bool {
    use BackupPhase as Phase;
    match phase {
        Phase::New | Phase::Queued | Phase::ReadyToStart | Phase::InProgress => true,
        Phase::Other(text) => text.is_empty(),
        _ => false,
    }
}

async fn backups_of(schedule: &Schedule, context: &ScheduleContext) -> Result<Vec<Backup>, Error> {
    let name = schedule.name_any();
    let selector = format!("{}={}", labels::SCHEDULE_NAME, labels::valid_name(&name));
    let found = context.leader.api::<Backup>().list(&ListParams::default().labels(&selector)).await;
    found.map(|list| list.items).map_err(|e| Error::api(format!("list backups of schedule {name}"), e))
}

/// Writes phase `Enabled` or `FailedValidation` if it has changed.
async fn write_phase(schedule: &Schedule, faults: &[String], context: &ScheduleContext) -> Result<(), Error> {
    let status = schedule.status.clone().unwrap_or_default();
    let phase = if faults.is_empty() { SchedulePhase::Enabled } else { SchedulePhase::FailedValidation };
    if status.phase.as_ref() == Some(&phase) && status.validation_errors == faults {
        return Ok(());
    }
    let errors = if faults.is_empty() { Value::Null } else { json!(faults) };
    patch_schedule(schedule, json!({ "status": { "phase": phase.as_str(), "validationErrors": errors } }), context)
        .await?;
    if !faults.is_empty() {
        let about = schedule.object_ref(&());
        context.leader.events.record(&about, EventType::Warning, "FailedValidation", &faults.join("; ")).await;
    }
    Ok(())
}

async fn patch_schedule(schedule: &Schedule, patch: Value, context: &ScheduleContext) -> Result<(), Error> {
    context.leader.fence.check()?;
    let name = schedule.name_any();
    match context.leader.api::<Schedule>().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error::api(format!("write schedule {name}"), error)),
    }
}

async fn skip(schedule: &Schedule, now: Timestamp, context: &ScheduleContext) -> Result<(), Error> {
    let skipped = json!({ "spec": { "skipImmediately": false }, "status": { "lastSkipped": format!("{now:.0}") } });
    patch_schedule(schedule, skipped, context).await
}
