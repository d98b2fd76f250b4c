//! Backups whose time is over: each gets a deletion request, where its location allows that.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{
    Backup, BackupStorageLocation, DeleteBackupRequest, DeleteBackupRequestPhase, DeleteBackupRequestSpec,
    LocationPhase,
};
use plimsoll_engine::{Error, kill};
use plimsoll_operations::controller::{duration_until, run_controller};
use plimsoll_operations::{EventType, LeaderClient, Lifecycle, SubjectState};
use plimsoll_volumes::storage_location::is_read_only;
use serde_json::json;
use tracing::info;

use super::expiry_limits::{check_clock, check_schedule};
use crate::backup::BackupController;
use crate::running_restores::running_restore;

/// Label: why an expired backup is still there.
const FAILURE: &str = "velero.io/gc-failure";

/// Context of the garbage collection.
pub struct GarbageCollectionContext {
    pub leader: LeaderClient,
    /// How often a Backup is checked.
    pub frequency: Duration,
}

/// Runs the controller until the future is dropped.
pub async fn control(context: Arc<GarbageCollectionContext>) {
    run_controller::<Backup, _, _, _>(&context.leader, Arc::clone(&context), reconcile).await;
}

/// Whether a backup has expired.
#[derive(Debug, PartialEq, Eq)]
enum Expiration {
    /// It has no expiration, or it is in use.
    Unlimited,
    /// Not before this time has passed.
    Fresh(Duration),
    Expired,
}

fn expiration(backup: &Backup, now: Timestamp) -> Expiration {
    let busy = BackupController::state(backup.phase().as_str()) == SubjectState::InProgress;
    match backup.status.as_ref().and_then(|status| status.expiration.clone()) {
        Some(expiration) if expiration.0 > now => Expiration::Fresh(duration_until(expiration.0, now)),
        Some(_) if !busy && backup.metadata.deletion_timestamp.is_none() => Expiration::Expired,
        _ => Expiration::Unlimited,
    }
}

/// An obstacle to the deletion of an expired backup.
struct Obstacle {
    /// The value of its label.
    reason: &'static str,
    /// For its Event.
    message: String,
}

async fn find_obstacle(backup: &Backup, context: &GarbageCollectionContext) -> Result<Option<Obstacle>, Error> {
    let leader = &context.leader;
    if let Some(reason) = location_obstacle(find_location(backup, context).await?.as_ref()) {
        return Ok(Some(Obstacle { reason, message: reason.to_owned() }));
    }
    if let Some(message) = check_clock(leader).await? {
        return Ok(Some(Obstacle { reason: "ClockDifference", message }));
    }
    if let Some(reading) = running_restore(&backup.name_any(), leader).await? {
        return Ok(Some(Obstacle { reason: "RestoreInProgress", message: format!("waiting for {reading}") }));
    }
    let limit = check_schedule(backup, Timestamp::now(), leader).await?;
    Ok(limit.map(|message| Obstacle { reason: "ScheduleLimit", message }))
}

/// The defect of the location of an expired backup, as the value of its label.
fn location_obstacle(location: Option<&BackupStorageLocation>) -> Option<&'static str> {
    let Some(location) = location else { return Some("BSLNotFound") };
    match location.status.as_ref().and_then(|status| status.phase.clone()) {
        Some(LocationPhase::Available) if is_read_only(location) => Some("BSLReadOnly"),
        Some(LocationPhase::Available) => None,
        _ => Some("BSLUnavailable"),
    }
}

async fn reconcile(backup: Arc<Backup>, context: Arc<GarbageCollectionContext>) -> Result<Action, Error> {
    let every = context.frequency;
    match expiration(&backup, Timestamp::now()) {
        Expiration::Unlimited => Ok(Action::requeue(every)),
        Expiration::Fresh(left) => Ok(Action::requeue((left + Duration::from_secs(1)).min(every))),
        Expiration::Expired => {
            let obstacle = find_obstacle(&backup, &context).await?;
            show_obstacle(&backup, obstacle.as_ref(), &context).await?;
            if obstacle.is_none() && !has_request(&backup, &context).await? {
                request(&backup, &context).await?;
            }
            Ok(Action::requeue(every))
        }
    }
}

async fn find_location(
    backup: &Backup,
    context: &GarbageCollectionContext,
) -> Result<Option<BackupStorageLocation>, Error> {
    let Some(name) = backup.spec.storage_location.as_deref().filter(|name| !name.is_empty()) else { return Ok(None) };
    let found = context.leader.api::<BackupStorageLocation>().get_opt(name).await;
    found.map_err(|e| Error::api(format!("read location {name}"), e))
}

/// Says on the backup why it is still there, or no longer.
async fn show_obstacle(
    backup: &Backup,
    obstacle: Option<&Obstacle>,
    context: &GarbageCollectionContext,
) -> Result<(), Error> {
    let reason = obstacle.map(|obstacle| obstacle.reason);
    if backup.labels().get(FAILURE).map(String::as_str) == reason {
        return Ok(());
    }
    context.leader.fence.check()?;
    let name = backup.name_any();
    let patch = Patch::Merge(json!({ "metadata": { "labels": { FAILURE: reason } } }));
    match context.leader.api::<Backup>().patch(&name, &PatchParams::default(), &patch).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(Error::api(format!("label backup {name}"), error)),
    }
    if let Some(obstacle) = obstacle {
        let message = format!("it has expired and cannot be deleted: {}", obstacle.message);
        context.leader.events.record(&backup.object_ref(&()), EventType::Warning, "NotCollected", &message).await;
    }
    Ok(())
}

/// Whether its deletion was requested already.
async fn has_request(backup: &Backup, context: &GarbageCollectionContext) -> Result<bool, Error> {
    let all = context.leader.api::<DeleteBackupRequest>().list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api("list deletion requests", e))?;
    let name = backup.name_any();
    Ok(all.items.iter().any(|request| {
        let phase = request.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        request.spec.backup_name.as_deref() == Some(&name) && phase != DeleteBackupRequestPhase::Processed
    }))
}

async fn request(backup: &Backup, context: &GarbageCollectionContext) -> Result<(), Error> {
    context.leader.fence.check()?;
    let name = backup.name_any();
    info!("backup {name} has expired: asking for its deletion");
    kill::point("garbage.request.before");
    let created =
        context.leader.api::<DeleteBackupRequest>().create(&PostParams::default(), &new_request(backup)).await;
    created.map_err(|e| Error::api(format!("ask for the deletion of backup {name}"), e))?;
    kill::point("garbage.request.after");
    let about = backup.object_ref(&());
    context.leader.events.record(&about, EventType::Normal, "Expired", "expired; its deletion was requested").await;
    Ok(())
}

fn new_request(backup: &Backup) -> DeleteBackupRequest {
    let name = backup.name_any();
    let marks = [
        (labels::BACKUP_NAME.to_owned(), labels::valid_name(&name)),
        (labels::BACKUP_UID.to_owned(), backup.uid().unwrap_or_default()),
    ];
    let metadata = ObjectMeta {
        generate_name: Some(format!("{name}-")),
        labels: Some(marks.into()),
        annotations: Some([(labels::EXPIRED.to_owned(), "true".to_owned())].into()),
        ..ObjectMeta::default()
    };
    let spec = DeleteBackupRequestSpec { backup_name: Some(name), ..DeleteBackupRequestSpec::default() };
    DeleteBackupRequest { metadata, spec, status: None }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use plimsoll_api::velero::v1::{AccessMode, BackupStatus, BackupStorageLocationStatus};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_backup_expires_when_its_time_is_over_and_not_while_it_runs() {
        let mut backup = Backup::fixture();
        assert_eq!(expiration(&backup, at(0)), Expiration::Unlimited);
        backup.status = Some(BackupStatus { expiration: Some(Time(at(100))), ..BackupStatus::default() });
        assert_eq!(expiration(&backup, at(40)), Expiration::Fresh(Duration::from_mins(1)));
        assert_eq!(expiration(&backup, at(100)), Expiration::Expired);
        assert_eq!(expiration(&backup.in_progress(), at(100)), Expiration::Unlimited);
    }

    #[test]
    fn what_keeps_an_expired_backup_has_a_name() {
        let location = |phase, mode| {
            let mut location = BackupStorageLocation::fixture();
            location.spec.access_mode = mode;
            location.status = Some(BackupStorageLocationStatus { phase, ..BackupStorageLocationStatus::default() });
            location
        };
        let available = || Some(LocationPhase::Available);
        assert_eq!(location_obstacle(None), Some("BSLNotFound"));
        assert_eq!(location_obstacle(Some(&location(None, None))), Some("BSLUnavailable"));
        assert_eq!(location_obstacle(Some(&location(available(), Some(AccessMode::ReadOnly)))), Some("BSLReadOnly"));
        assert_eq!(location_obstacle(Some(&location(available(), None))), None);
    }
}
