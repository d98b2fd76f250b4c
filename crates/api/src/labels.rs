//! Names of labels, annotations and finalizers, and the function that makes a label value of a name.

use sha2::{Digest, Sha256};

/// Label on every object that `plimsoll install` creates, with the value [`PART_OF_PLIMSOLL`].
pub const PART_OF: &str = "app.kubernetes.io/part-of";
/// The value of [`PART_OF`].
pub const PART_OF_PLIMSOLL: &str = "plimsoll";
/// Label: the backup an object belongs to.
pub const BACKUP_NAME: &str = "velero.io/backup-name";
/// Label: the uid of that backup.
pub const BACKUP_UID: &str = "velero.io/backup-uid";
/// Label: the restore an object was created by or belongs to.
pub const RESTORE_NAME: &str = "velero.io/restore-name";
/// Label: the uid of that restore.
pub const RESTORE_UID: &str = "velero.io/restore-uid";
/// Label: the schedule that created a backup.
pub const SCHEDULE_NAME: &str = "velero.io/schedule-name";
/// Label: the BackupStorageLocation of a backup or repository.
pub const STORAGE_LOCATION: &str = "velero.io/storage-location";
/// Label: the namespace whose volumes a repository holds.
pub const VOLUME_NAMESPACE: &str = "velero.io/volume-namespace";
/// Label: the type (`kopia`, `restic`) of a repository.
pub const REPOSITORY_TYPE: &str = "velero.io/repository-type";
/// Label: the pod a volume transfer belongs to.
pub const POD_UID: &str = "velero.io/pod-uid";
/// Label: the persistent volume claim a volume transfer belongs to.
pub const PVC_UID: &str = "velero.io/pvc-uid";
/// Label: the asynchronous operation a transfer belongs to.
pub const ASYNC_OPERATION_ID: &str = "velero.io/async-operation-id";
/// Label: `true` excludes an object from every backup.
pub const EXCLUDE_FROM_BACKUP: &str = "velero.io/exclude-from-backup";
/// Annotation on a DeleteBackupRequest: it was made because the backup has expired, not by a person.
pub const EXPIRED: &str = "plimsoll.dev/expired";
/// Label on claims whose volumes Velero snapshots together: its default of `volumeGroupSnapshotLabelKey`.
pub const VOLUME_GROUP: &str = "velero.io/volume-group";
/// Label on ConfigMaps that record a moved snapshot until its backup is deleted.
pub const DATA_UPLOAD_SNAPSHOT_INFO: &str = "velero.io/data-upload-snapshot-info";
/// Annotation on a pod: its volumes whose files are backed up, separated by commas.
pub const BACKUP_VOLUMES: &str = "backup.velero.io/backup-volumes";
/// Annotation on a pod: its volumes whose files are not backed up, separated by commas.
pub const BACKUP_VOLUMES_EXCLUDES: &str = "backup.velero.io/backup-volumes-excludes";
/// Annotation on a Backup or Restore: how long the transfer of one of its volumes may take.
pub const POD_VOLUME_TIMEOUT: &str = "velero.io/pod-volume-timeout";
/// Annotation that a BackupItemAction sets on an item: its additional items are included regardless of the filters.
/// Internal; removed before the item is stored.
pub const MUST_INCLUDE_ADDITIONAL_ITEMS: &str = "backup.velero.io/must-include-additional-items";
/// The same for a RestoreItemAction, since Velero 1.18.3.
pub const RESTORE_MUST_INCLUDE_ADDITIONAL_ITEMS: &str = "restore.velero.io/must-include-additional-items";
/// Annotation on a backup: version of the server's cluster (`v1.34.1`).
pub const SOURCE_CLUSTER_K8S_GIT_VERSION: &str = "velero.io/source-cluster-k8s-gitversion";
/// Annotation on a backup: major version of the server's cluster.
pub const SOURCE_CLUSTER_K8S_MAJOR: &str = "velero.io/source-cluster-k8s-major-version";
/// Annotation on a backup: minor version of the server's cluster.
pub const SOURCE_CLUSTER_K8S_MINOR: &str = "velero.io/source-cluster-k8s-minor-version";
/// Annotation on a backup: its resource timeout.
pub const RESOURCE_TIMEOUT: &str = "velero.io/resource-timeout";
/// Annotation on a pod volume backup: the claim of the volume.
pub const PVC_NAME: &str = "velero.io/pvc-name";
/// Annotation on a VolumePluginBackup or VolumePluginRestore that the server writes on behalf of the plugin: the volume.
pub const MANAGED_BY_SERVER: &str = "plimsoll.dev/managed-by-server";
/// Annotation: the VolumeSnapshotLocation of a plugin's snapshot.
pub const SNAPSHOT_LOCATION: &str = "plimsoll.dev/snapshot-location";
/// Annotation on a volume transfer created by Plimsoll: the mover, where the uploader type allows more than one.
pub const MOVER: &str = "plimsoll.dev/mover";
/// Annotation on a volume transfer: how often a node has started it.
pub const ATTEMPTS: &str = "plimsoll.dev/attempts";
/// Annotation on a volume transfer: how many of those attempts could not start because the repository was locked.
pub const LOCKED_ATTEMPTS: &str = "plimsoll.dev/locked-attempts";
/// Annotation on a transfer into a volume that was empty when its first attempt began: the node's boot id at that time. While
/// the node has the same boot id, the files in the volume are the ones that earlier attempts wrote.
pub const RESTORE_BOOT_ID: &str = "plimsoll.dev/restore-boot-id";
/// Annotation on a PodVolumeRestore: the result of the data movement. Once it is set, no data is moved again.
pub const DATA_MOVEMENT_RESULT: &str = "plimsoll.dev/data-movement-result";
/// Annotation on an agent's Lease: address at which it serves the live progress of its transfers.
pub const PROGRESS_ADDRESS: &str = "plimsoll.dev/progress-address";
/// Annotation on the server's Lease: the default of `spec.defaultVolumesToFsBackup`. The command line reads it
/// when it plans a backup.
pub const DEFAULT_VOLUMES_TO_FS_BACKUP: &str = "plimsoll.dev/default-volumes-to-fs-backup";
/// The same for the default of `spec.snapshotMoveData`.
pub const DEFAULT_SNAPSHOT_MOVE_DATA: &str = "plimsoll.dev/default-snapshot-move-data";
/// Annotation on a finished DataUpload or DataDownload: its temporary objects are deleted, and a restored claim has its volume.
pub const CLEANED_UP: &str = "plimsoll.dev/cleaned-up";
/// Label on the temporary objects of a volume transfer: the transfer's uid.
pub const TRANSFER_UID: &str = "plimsoll.dev/transfer-uid";
/// Finalizer on a Restore: its files in the bucket are deleted first.
pub const RESTORE_FINALIZER: &str = "restores.velero.io/external-resources-finalizer";

/// Maximum length of a label value.
const MAX_LABEL_VALUE_LENGTH: usize = 63;
/// Hex digits of the hash at the end of a shortened value.
const HASH_DIGITS: usize = 6;

/// The label value for a name: the name itself or, when it is too long for a label, its first 57 bytes and six hex digits of
/// its SHA-256. Velero makes the values of its labels this way (`label.GetValidName`); selectors rely on it.
pub fn valid_name(name: &str) -> String {
    if name.len() <= MAX_LABEL_VALUE_LENGTH {
        return name.to_owned();
    }
    let digest = Sha256::digest(name.as_bytes());
    let hash = u32::from_be_bytes([0, digest[0], digest[1], digest[2]]);
    // Names of Kubernetes objects are ASCII; other text is cut at a character boundary.
    format!("{}{hash:0HASH_DIGITS$x}", &name[..name.floor_char_boundary(MAX_LABEL_VALUE_LENGTH - HASH_DIGITS)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_is_its_own_label_value() {
        let name = "a".repeat(63);
        assert_eq!(valid_name(&name), name);
    }

    #[test]
    fn a_longer_name_ends_in_its_hash() {
        let name = "the-quick-brown-fox-jumps-over-the-lazy-dog-the-quick-brown-fox-jumps";
        let value = valid_name(name);
        assert_eq!(value.len(), 63);
        assert_eq!(value, "the-quick-brown-fox-jumps-over-the-lazy-dog-the-quick-bro9c91a6");
    }

    #[test]
    fn a_name_is_cut_at_a_character_boundary() {
        assert!(valid_name(&"é".repeat(40)).len() <= 63);
    }
}
