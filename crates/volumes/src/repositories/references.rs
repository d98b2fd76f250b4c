//! Every snapshot that some backup in a location refers to, or may yet refer to.

use kube::ResourceExt;
use kube::api::ListParams;
use plimsoll_api::velero::v1::{Backup, PodVolumeBackup};
use plimsoll_api::velero::v2alpha1::DataUpload;
use plimsoll_archive::layout;
use plimsoll_archive::volume_info::BackupVolumeInfo;
use plimsoll_engine::{Error, read_backup_list};
use plimsoll_mover::{References, UnfinishedBackup};
use plimsoll_store::Store;

use super::Repositories;

/// What refers to snapshots; to be called after they were listed. A backup that ends in between has written down what it names.
pub(super) async fn find(repositories: &Repositories, store: &Store) -> Result<References, Error> {
    let unfinished = unfinished(repositories).await?;
    Ok(References { unfinished, snapshots: snapshots(repositories, store).await? })
}

async fn unfinished(repositories: &Repositories) -> Result<Vec<UnfinishedBackup>, Error> {
    let backups = repositories.leader.api::<Backup>().list(&ListParams::default()).await;
    let backups = backups.map_err(|e| Error::api("list Backups", e))?;
    let open = backups.items.into_iter().filter(|backup| !backup.phase().is_ended());
    Ok(open.map(|backup| UnfinishedBackup { name: backup.name_any(), uid: backup.uid().unwrap_or_default() }).collect())
}

/// The snapshots named by the backups in the location, whichever cluster made them, and by this cluster's transfers. A file that
/// cannot be read is an error: what is not known to be unused is not an orphan.
async fn snapshots(repositories: &Repositories, store: &Store) -> Result<Vec<String>, Error> {
    let mut known = in_cluster(repositories).await?;
    for folder in store.list_directories(layout::BACKUPS_DIRECTORY).await? {
        let folder = format!("{}{}", layout::BACKUPS_DIRECTORY, folder.trim_start_matches(layout::BACKUPS_DIRECTORY));
        if let Some(backup) = layout::backup_name_of_key(&folder) {
            known.extend(of_backup(store, backup).await?);
        }
    }
    known.retain(|id| !id.is_empty());
    Ok(known)
}

async fn in_cluster(repositories: &Repositories) -> Result<Vec<String>, Error> {
    let transfers = repositories.leader.api::<PodVolumeBackup>().list(&ListParams::default()).await;
    let transfers = transfers.map_err(|e| Error::api("list PodVolumeBackups", e))?.items;
    let uploads = match repositories.leader.api::<DataUpload>().list(&ListParams::default()).await {
        Ok(uploads) => uploads.items,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(Error::api("list DataUploads", error)),
    };
    let transfers = transfers.into_iter().filter_map(|transfer| transfer.status?.snapshot_id);
    let uploads = uploads.into_iter().filter_map(|upload| upload.status?.snapshot_id);
    Ok(transfers.chain(uploads).collect())
}

async fn of_backup(store: &Store, backup: &str) -> Result<Vec<String>, Error> {
    let transfers: Vec<PodVolumeBackup> = read_backup_list(store, &layout::backup_pod_volume_backups(backup)).await?;
    let volumes: Vec<BackupVolumeInfo> = read_backup_list(store, &layout::backup_volume_info(backup)).await?;
    let mut known: Vec<String> = transfers.into_iter().filter_map(|transfer| transfer.status?.snapshot_id).collect();
    for volume in volumes {
        known.extend(volume.pvb_info.map(|info| info.snapshot_handle));
        known.extend(volume.snapshot.snapshot_data_movement_info.map(|info| info.snapshot_handle));
    }
    Ok(known)
}
