//! Schedule: creates Backups when its cron expression is due.

mod submit;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use plimsoll_api::velero::v1::{Backup, BackupPhase, Schedule, SchedulePhase};
use plimsoll_api::{labels, validate};
use plimsoll_engine::Error;
use plimsoll_operations::controller::{duration_until, run_controller};
use plimsoll_operations::{EventType, Lifecycle};
use serde_json::{Value, json};

use self::submit::submit;
use crate::backup::BackupController;
use crate::context::Context;
use crate::cron::Cron;

/// Maximum interval between checks of a schedule: clocks may jump.
const MAX_POLL_INTERVAL: Duration = Duration::from_mins(1);

/// While a backup of the schedule is under way.
const BUSY_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Runs the controller until the future is dropped.
pub async fn control(context: Arc<Context>) {
    run_controller::<Schedule, _, _, _>(&context.leader, Arc::clone(&context), reconcile).await;
}

/// The observed state of a schedule.
#[derive(Clone, Debug, Default)]
struct Observed {
    faults: Vec<String>,
    created: Timestamp,
    last_backup: Option<Timestamp>,
    last_skipped: Option<Timestamp>,
    paused: bool,
    /// The user wants no backup before the next time it is due.
    skip: bool,
    /// Its backup that has not ended.
    busy: Option<String>,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    /// Say what is wrong.
    Refuse,
    /// Begin to count from now.
    Skip,
    /// Nothing until then, if ever.
    Wait(Option<Timestamp>),
    /// It is due, and an earlier one is under way.
    Hold(String),
    /// It was due at this time.
    Submit(Timestamp),
}

fn decide(seen: &Observed, cron: Option<&Cron>, now: Timestamp) -> Decision {
    let Some(cron) = cron.filter(|_| seen.faults.is_empty()) else { return Decision::Refuse };
    if seen.skip {
        return Decision::Skip;
    }
    let last = seen.last_backup.unwrap_or(seen.created);
    let next = cron.next(seen.last_skipped.map_or(last, |skipped| skipped.max(last)));
    match next {
        Some(due) if due < now && !seen.paused => match &seen.busy {
            Some(busy) => Decision::Hold(busy.clone()),
            None => Decision::Submit(due),
        },
        next => Decision::Wait(next.filter(|_| !seen.paused)),
    }
}

async fn reconcile(schedule: Arc<Schedule>, context: Arc<Context>) -> Result<Action, Error> {
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

fn observe(schedule: &Schedule, faults: Vec<String>, backups: &[Backup], context: &Context) -> Observed {
    let status = schedule.status.clone().unwrap_or_default();
    let time = |time: Option<Time>| time.map(|time| time.0);
    Observed {
        faults,
        created: time(schedule.creation_timestamp()).unwrap_or(Timestamp::UNIX_EPOCH),
        last_backup: time(status.last_backup),
        last_skipped: time(status.last_skipped),
        paused: schedule.spec.paused == Some(true),
        skip: schedule.spec.skip_immediately.unwrap_or(context.settings.schedule_skip_immediately)
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

/// What is wrong with a schedule: its expression, its own fields, and its template by the same checks as a Backup.
fn validate_schedule(schedule: &Schedule) -> (Vec<String>, Option<Cron>) {
    let mut raw = serde_json::to_value(schedule).unwrap_or_default();
    raw["apiVersion"] = json!("velero.io/v1");
    raw["kind"] = json!("Schedule");
    let mut faults = validate::check(&raw).err().map(|invalid| invalid.lines()).unwrap_or_default();
    let backup = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": schedule.name_any() },
        "spec": raw.pointer("/spec/template").cloned().unwrap_or_else(|| json!({})) });
    for fault in BackupController::validate(&backup) {
        let fault = fault.replacen("spec.", "spec.template.", 1);
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
    let expression = schedule.spec.schedule.as_deref().unwrap_or_default();
    match expression.parse::<Cron>() {
        Ok(cron) => (faults, Some(cron)),
        Err(_) if expression.is_empty() => {
            faults.insert(0, "spec.schedule: must be a non-empty valid cron expression".into());
            (faults, None)
        }
        Err(error) => {
            faults.insert(0, format!("spec.schedule: invalid schedule: {error}"));
            (faults, None)
        }
    }
}

async fn backups_of(schedule: &Schedule, context: &Context) -> Result<Vec<Backup>, Error> {
    let name = schedule.name_any();
    let selector = format!("{}={}", labels::SCHEDULE_NAME, labels::valid_name(&name));
    let found = context.leader.api::<Backup>().list(&ListParams::default().labels(&selector)).await;
    found.map(|list| list.items).map_err(|e| Error::api(format!("list backups of schedule {name}"), e))
}

/// `Enabled` or `FailedValidation`, where that is not what it says already.
async fn write_phase(schedule: &Schedule, faults: &[String], context: &Context) -> Result<(), Error> {
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

async fn patch_schedule(schedule: &Schedule, patch: Value, context: &Context) -> Result<(), Error> {
    context.leader.fence.check()?;
    let name = schedule.name_any();
    match context.leader.api::<Schedule>().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error::api(format!("write schedule {name}"), error)),
    }
}

async fn skip(schedule: &Schedule, now: Timestamp, context: &Context) -> Result<(), Error> {
    let skipped = json!({ "spec": { "skipImmediately": false }, "status": { "lastSkipped": format!("{now:.0}") } });
    patch_schedule(schedule, skipped, context).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn seen() -> Observed {
        Observed { created: at("2026-05-01T10:30:00Z"), ..Observed::default() }
    }

    #[test]
    fn the_table() {
        let cron: Cron = "0 3 * * *".parse().unwrap();
        let busy = Observed { busy: Some("b".into()), ..seen() };
        let skipped = Observed { last_skipped: Some(at("2026-05-02T03:00:10Z")), ..seen() };
        let done = Observed { last_backup: Some(at("2026-05-02T03:00:01Z")), ..seen() };
        let next_day = Decision::Wait(Some(at("2026-05-03T03:00:00Z")));
        let due = Decision::Submit(at("2026-05-02T03:00:00Z"));
        let cases = [
            ("not yet", seen(), "2026-05-01T20:00:00Z", Decision::Wait(Some(at("2026-05-02T03:00:00Z")))),
            ("due", seen(), "2026-05-02T03:00:01Z", due.clone()),
            ("missed runs are one run", seen(), "2026-05-09T12:00:00Z", due),
            ("due, and one is under way", busy, "2026-05-02T03:00:01Z", Decision::Hold("b".into())),
            ("done", done, "2026-05-02T04:00:00Z", next_day.clone()),
            ("left out", skipped, "2026-05-02T04:00:00Z", next_day),
            ("paused", Observed { paused: true, ..seen() }, "2026-05-02T03:00:01Z", Decision::Wait(None)),
            ("asked to begin later", Observed { skip: true, ..seen() }, "2026-05-02T03:00:01Z", Decision::Skip),
            ("refused", Observed { faults: vec!["x".into()], ..seen() }, "2026-05-02T03:00:01Z", Decision::Refuse),
        ];
        for (name, seen, now, expected) in cases {
            assert_eq!(decide(&seen, Some(&cron), at(now)), expected, "{name}");
        }
        assert_eq!(decide(&seen(), None, at("2026-05-02T03:00:01Z")), Decision::Refuse);
    }

    /// A month of a schedule on a clock of its own.
    #[test]
    fn a_schedule_makes_a_backup_each_time_it_is_due_and_never_two() {
        let cron: Cron = "TZ=Europe/Berlin 30 2 * * *".parse().unwrap();
        let (mut seen, mut now, mut made) = (
            Observed { created: at("2026-03-25T00:00:00Z"), ..Observed::default() },
            at("2026-03-25T00:00:00Z"),
            vec![],
        );
        while now < at("2026-04-02T00:00:00Z") {
            match decide(&seen, Some(&cron), now) {
                Decision::Submit(due) => {
                    made.push(due.to_string());
                    seen.last_backup = Some(now);
                }
                Decision::Wait(Some(next)) => now = next + jiff::SignedDuration::from_millis(50),
                other => panic!("{other:?}"),
            }
        }
        let expected = ["25T01", "26T01", "27T01", "28T01", "30T00", "31T00"]; // none on the day without half past two
        let expected: Vec<_> = expected.iter().map(|day| format!("2026-03-{day}:30:00Z")).collect();
        assert_eq!(made[..6], expected);
        assert_eq!(made[6..], ["2026-04-01T00:30:00Z"]);
    }

    #[test]
    fn a_template_is_checked_like_a_backup() {
        let mut schedule = Schedule::fixture();
        assert_eq!(validate_schedule(&schedule).0, Vec::<String>::new());
        schedule.spec.schedule = Some("0 25 * * *".into());
        let policy = serde_json::from_value(json!({ "kind": "Secret", "name": "rules" })).unwrap();
        schedule.spec.template.get_or_insert_default().resource_policy = Some(policy);
        let faults = validate_schedule(&schedule).0;
        assert!(faults[0].starts_with("spec.schedule: invalid schedule: hour \"25\""), "{faults:?}");
        assert!(faults[1].starts_with("spec.template.resourcePolicy"), "{faults:?}");
    }
}
