//! DownloadRequest: a link to one file of a backup or restore.

pub mod download_server;
mod links;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use plimsoll_api::velero::v1::{
    Backup, BackupStorageLocation, DownloadRequest, DownloadTarget, DownloadTargetKind, RequestPhase, Restore,
};
use plimsoll_archive::layout;
use plimsoll_engine::Error;
use plimsoll_operations::controller::{duration_until, run_controller, time_after};
use plimsoll_operations::{EventType, LeaderClient, LiveProgress};
use plimsoll_volumes::storage_location::StorageLocations;
use serde_json::{Value, json};

use self::links::{Signer, Target};

/// A link is good for so long.
const VALID_FOR: Duration = Duration::from_mins(10);
/// How soon a request without a link is tried again; clients wait up to a minute.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Context of the controller.
pub struct DownloadRequestContext {
    pub leader: LeaderClient,
    /// Opens locations.
    pub storage: Arc<StorageLocations>,
    pub live: LiveProgress,
    /// The base URL of links to the objects of directories.
    pub download_base: Option<String>,
}

/// Runs the controller until the future is dropped.
pub async fn control(context: Arc<DownloadRequestContext>) {
    run_controller::<DownloadRequest, _, _, _>(&context.leader, Arc::clone(&context), reconcile).await;
}

#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Answer,
    Keep(Duration),
    Delete,
}

fn decide(request: &DownloadRequest, now: Timestamp) -> Decision {
    let status = request.status.clone().unwrap_or_default();
    match status.expiration {
        Some(ends) if ends.0 <= now => Decision::Delete,
        Some(ends) if status.phase == Some(RequestPhase::Processed) => Decision::Keep(duration_until(ends.0, now)),
        _ => Decision::Answer,
    }
}

async fn reconcile(request: Arc<DownloadRequest>, context: Arc<DownloadRequestContext>) -> Result<Action, Error> {
    match decide(&request, Timestamp::now()) {
        Decision::Keep(time) => Ok(Action::requeue(time + Duration::from_millis(100))),
        Decision::Delete => {
            context.leader.delete::<DownloadRequest>(&request.name_any()).await?;
            Ok(Action::await_change())
        }
        Decision::Answer => answer(&request, &context).await,
    }
}

async fn answer(request: &DownloadRequest, context: &DownloadRequestContext) -> Result<Action, Error> {
    let expiration = format!("{:.0}", time_after(Timestamp::now(), VALID_FOR));
    let known = request.status.clone().unwrap_or_default();
    match link(&request.spec.target.clone().unwrap_or_default(), context).await? {
        Ok(url) => {
            let phase = RequestPhase::Processed.as_str();
            let status = json!({ "phase": phase, "downloadURL": url, "expiration": expiration, "message": null });
            write(request, &status, context).await?;
            Ok(Action::requeue(VALID_FOR))
        }
        Err(message) => {
            if known.message.as_deref() != Some(&message) {
                let about = request.object_ref(&());
                context.leader.events.record(&about, EventType::Warning, "NoDownload", &message).await;
                // The first refusal starts the clock: a request that never gets a link is deleted like any other.
                let expiration = known.expiration.map_or(expiration, |time| format!("{:.0}", time.0));
                write(request, &json!({ "expiration": expiration, "message": message }), context).await?;
            }
            Ok(Action::requeue(RETRY_INTERVAL))
        }
    }
}

async fn write(request: &DownloadRequest, status: &Value, context: &DownloadRequestContext) -> Result<(), Error> {
    context.leader.fence.check()?;
    let name = request.name_any();
    let patch = Patch::Merge(json!({ "status": status }));
    match context.leader.api::<DownloadRequest>().patch(&name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error::api(format!("answer download request {name}"), error)),
    }
}

/// The link, or why there is none.
async fn link(target: &DownloadTarget, context: &DownloadRequestContext) -> Result<Result<String, String>, Error> {
    let name = target.name.clone().unwrap_or_default();
    let Some(file) = file(target.kind.as_ref(), &name) else {
        let kind = target.kind.as_ref().map(ToString::to_string).unwrap_or_default();
        return Ok(Err(format!("spec.target.kind: {kind:?} is not a file that can be downloaded")));
    };
    let location = match find_location(&file, &name, context).await? {
        Ok(location) => location,
        Err(message) => return Ok(Err(message)),
    };
    if let Some(verb) = file.live {
        // Without it the file is a little older; that is no reason to refuse it.
        let _ = context.live.flush(verb, &name).await;
    }
    match sign(&location, &file.key, context).await {
        Err(error @ Error::Store(_)) if !error.is_retryable() => Ok(Err(error.to_string())),
        answer => answer,
    }
}

async fn sign(
    location: &BackupStorageLocation,
    key: &str,
    context: &DownloadRequestContext,
) -> Result<Result<String, String>, Error> {
    let store = context.storage.open(location).await?;
    if let Some(url) = store.presign(key, VALID_FOR).await? {
        return Ok(Ok(url.to_string()));
    }
    let Some(base) = &context.download_base else {
        return Ok(Err(format!(
            "location {} is a directory, and the server has no address for its downloads: start it with \
             --download-address and --download-url",
            location.name_any()
        )));
    };
    let signer = Signer::find_or_make(context.leader.client.clone(), &context.leader.namespace).await?;
    let target = Target { location: location.name_any(), key: key.to_owned() };
    Ok(Ok(format!("{base}{}", signer.sign(&target, Timestamp::now(), VALID_FOR))))
}

/// From the restore to its backup to its location; the inner error is the user's.
async fn find_location(
    file: &File,
    name: &str,
    context: &DownloadRequestContext,
) -> Result<Result<BackupStorageLocation, String>, Error> {
    let mut backup_name = name.to_owned();
    if file.of_restore {
        let found = context.leader.api::<Restore>().get_opt(name).await;
        match found.map_err(|e| Error::api(format!("read restore {name}"), e))? {
            Some(restore) => backup_name = restore.spec.backup_name.unwrap_or_default(),
            None => return Ok(Err(format!("restore {name} not found"))),
        }
    }
    let found = context.leader.api::<Backup>().get_opt(&backup_name).await;
    let Some(backup) = found.map_err(|e| Error::api(format!("read backup {backup_name}"), e))? else {
        return Ok(Err(format!("backup {backup_name} not found")));
    };
    let Some(wanted) = backup.spec.storage_location.filter(|location| !location.is_empty()) else {
        return Ok(Err(format!("backup {backup_name} has no location yet")));
    };
    let found = context.leader.api::<BackupStorageLocation>().get_opt(&wanted).await;
    let found = found.map_err(|e| Error::api(format!("read location {wanted}"), e))?;
    Ok(found.ok_or(format!("BackupStorageLocation {wanted} of backup {backup_name} not found")))
}

#[derive(Debug, PartialEq, Eq)]
struct File {
    key: String,
    of_restore: bool,
    /// Whose background operations are in it, still growing.
    live: Option<&'static str>,
}

fn file(kind: Option<&DownloadTargetKind>, name: &str) -> Option<File> {
    use DownloadTargetKind as Kind;
    let backup = |key: fn(&str) -> String| Some(File { key: key(name), of_restore: false, live: None });
    let restore = |key: fn(&str) -> String| Some(File { key: key(name), of_restore: true, live: None });
    let live = |file: Option<File>, verb| file.map(|file| File { live: Some(verb), ..file });
    match kind? {
        Kind::BackupLog => backup(layout::backup_log),
        Kind::BackupContents => backup(layout::backup_contents),
        Kind::BackupVolumeSnapshots => backup(layout::backup_volume_snapshots),
        Kind::BackupItemOperations => live(backup(layout::backup_item_operations), "backup"),
        Kind::BackupResourceList => backup(layout::backup_resource_list),
        Kind::BackupResults => backup(layout::backup_results),
        Kind::BackupVolumeInfos => backup(layout::backup_volume_info),
        Kind::CsiBackupVolumeSnapshots => backup(layout::backup_csi_volume_snapshots),
        Kind::CsiBackupVolumeSnapshotContents => backup(layout::backup_csi_volume_snapshot_contents),
        Kind::RestoreLog => restore(layout::restore_log),
        Kind::RestoreResults => restore(layout::restore_results),
        Kind::RestoreResourceList => restore(layout::restore_resource_list),
        Kind::RestoreItemOperations => live(restore(layout::restore_item_operations), "restore"),
        Kind::RestoreVolumeInfo => restore(layout::restore_volume_info),
        Kind::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use plimsoll_api::velero::v1::DownloadRequestStatus;

    use super::*;

    #[test]
    fn every_kind_upstream_lists_is_a_file() {
        for kind in DownloadTargetKind::KNOWN {
            let file = file(Some(&DownloadTargetKind::from(*kind)), "x").unwrap();
            let folder = if kind.starts_with("Restore") { "restores/x/" } else { "backups/x/" };
            assert!(file.key.starts_with(folder), "{kind}: {}", file.key);
            assert_eq!(file.of_restore, kind.starts_with("Restore"), "{kind}");
        }
        assert_eq!(file(Some(&DownloadTargetKind::from("Secrets")), "x"), None);
    }

    #[test]
    fn a_link_is_kept_until_it_expires_and_a_request_without_one_is_tried_again() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let request = |phase: Option<RequestPhase>| DownloadRequest {
            status: Some(DownloadRequestStatus {
                phase,
                expiration: Some(Time(at(600))),
                ..DownloadRequestStatus::default()
            }),
            ..DownloadRequest::default()
        };
        assert_eq!(decide(&DownloadRequest::default(), at(0)), Decision::Answer);
        assert_eq!(decide(&request(None), at(10)), Decision::Answer);
        let processed = request(Some(RequestPhase::Processed));
        assert_eq!(decide(&processed, at(10)), Decision::Keep(Duration::from_secs(590)));
        assert_eq!(decide(&processed, at(600)), Decision::Delete);
        assert_eq!(decide(&request(None), at(600)), Decision::Delete);
    }
}
