//! Creates the Backup of a Schedule that is due.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ObjectMeta, PostParams};
use kube::{Resource, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{Backup, Schedule};
use plimsoll_engine::{Error, kill};
use plimsoll_operations::EventType;
use serde_json::json;
use tracing::info;

use super::{ScheduleContext, patch_schedule};

/// Annotation on a backup: the time at which it was due. An interrupted submission is found again by it.
const DUE_ANNOTATION: &str = "plimsoll.dev/due";

/// What `kubectl apply` remembers about the schedule says nothing about its backups.
const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Creates the backup, unless an interrupted attempt has done so, and remembers when.
pub(super) async fn submit(
    schedule: &Schedule,
    due: Timestamp,
    now: Timestamp,
    backups: &[Backup],
    context: &ScheduleContext,
) -> Result<(), Error> {
    context.leader.fence.check()?;
    let mark = due.to_string();
    let made = backups.iter().find(|backup| backup.annotations().get(DUE_ANNOTATION) == Some(&mark));
    let (name, time) = match made {
        Some(backup) => (backup.name_any(), backup.creation_timestamp().map_or(now, |time| time.0)),
        None => (create(schedule, due, now, context).await?, now),
    };
    kill::point("schedule.status.before");
    patch_schedule(schedule, json!({ "status": { "lastBackup": format!("{time:.0}") } }), context).await?;
    kill::point("schedule.status.after");
    let message = format!("backup {name} is created");
    context.leader.events.record(&schedule.object_ref(&()), EventType::Normal, "BackupCreated", &message).await;
    Ok(())
}

async fn create(
    schedule: &Schedule,
    due: Timestamp,
    now: Timestamp,
    context: &ScheduleContext,
) -> Result<String, Error> {
    let backup = new_backup(schedule, due, now);
    let name = backup.name_any();
    info!("schedule {} is due: creating backup {name}", schedule.name_any());
    kill::point("schedule.create.before");
    let answer = context.leader.api::<Backup>().create(&PostParams::default(), &backup).await;
    kill::point("schedule.create.after");
    match answer {
        Ok(_) => Ok(name),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(name),
        Err(error) => Err(Error::api(format!("create backup {name}"), error)),
    }
}

/// The backup that a schedule makes at a time.
fn new_backup(schedule: &Schedule, due: Timestamp, now: Timestamp) -> Backup {
    let name = schedule.name_any();
    let template = schedule.spec.template.clone().unwrap_or_default();
    let explicit = template.metadata.as_ref().map(|metadata| metadata.labels.clone()).filter(|found| !found.is_empty());
    let mut marks = explicit.unwrap_or_else(|| schedule.labels().clone());
    marks.insert(labels::SCHEDULE_NAME.into(), labels::valid_name(&name));
    let mut notes = schedule.annotations().clone();
    notes.remove(LAST_APPLIED_ANNOTATION);
    notes.insert(DUE_ANNOTATION.into(), due.to_string());
    let owner = schedule.spec.use_owner_references_in_backup.unwrap_or(false).then(|| owner_reference(schedule));
    let metadata = ObjectMeta {
        name: Some(backup_name(&name, now)),
        labels: Some(marks),
        annotations: Some(notes),
        owner_references: owner.map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    Backup { metadata, spec: template, status: None }
}

fn backup_name(name: &str, now: Timestamp) -> String {
    format!("{name}-{}", TimeZone::UTC.to_datetime(now).strftime("%Y%m%d%H%M%S"))
}

fn owner_reference(schedule: &Schedule) -> OwnerReference {
    OwnerReference {
        api_version: Schedule::api_version(&()).into_owned(),
        kind: Schedule::kind(&()).into_owned(),
        name: schedule.name_any(),
        uid: schedule.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_api::velero::v1::BackupMetadata;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_backup_takes_its_labels_annotations_and_owner_from_its_schedule() {
        let mut schedule = Schedule::fixture();
        schedule.metadata.uid = Some("u".into());
        schedule.metadata.labels = Some([("team".to_owned(), "shop".to_owned())].into());
        schedule.metadata.annotations =
            Some([("note".into(), "x".into()), (LAST_APPLIED_ANNOTATION.into(), "{}".into())].into());
        schedule.spec.use_owner_references_in_backup = Some(true);
        let (due, now) = (at("2026-05-02T03:00:00Z"), at("2026-05-02T03:00:07Z"));
        let made = new_backup(&schedule, due, now);
        assert_eq!(made.name_any(), format!("{}-20260502030007", schedule.name_any()));
        assert_eq!(made.labels()["team"], "shop");
        assert_eq!(made.labels()[labels::SCHEDULE_NAME], schedule.name_any());
        assert_eq!(made.annotations().keys().collect::<Vec<_>>(), ["note", DUE_ANNOTATION]);
        assert_eq!(made.owner_references()[0].uid, "u");
        let explicit =
            BackupMetadata { labels: [("a".to_owned(), "b".to_owned())].into(), ..BackupMetadata::default() };
        schedule.spec.template.get_or_insert_default().metadata = Some(explicit);
        assert!(!new_backup(&schedule, due, now).labels().contains_key("team"), "the template's own labels go instead");
    }
}
