//! Names of labels, annotations and finalizers, and the one rule about their values.

use sha2::{Digest, Sha256};

/// Label on everything that our installer makes, with the value [`OURS`].
pub const PART_OF: &str = "app.kubernetes.io/part-of";
/// The value of [`PART_OF`].
pub const OURS: &str = "plimsoll";
/// Label: the backup an object belongs to.
pub const BACKUP_NAME: &str = "velero.io/backup-name";
/// Label: the uid of that backup.
pub const BACKUP_UID: &str = "velero.io/backup-uid";
/// Label: the restore an object was created by or belongs to.
pub const RESTORE_NAME: &str = "velero.io/restore-name";
/// Label: the uid of that restore.
pub const RESTORE_UID: &str = "velero.io/restore-uid";
/// Label: the schedule a backup was made by.
pub const SCHEDULE_NAME: &str = "velero.io/schedule-name";
/// Label: the BackupStorageLocation a backup or repository is kept in.
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
/// Label: set to `true`, leaves an object out of every backup.
pub const EXCLUDE_FROM_BACKUP: &str = "velero.io/exclude-from-backup";
/// Label on ConfigMaps that remember a moved snapshot until its backup is deleted.
pub const DATA_UPLOAD_SNAPSHOT_INFO: &str = "velero.io/data-upload-snapshot-info";
/// Annotation on a pod: its volumes whose files are backed up, separated by commas.
pub const BACKUP_VOLUMES: &str = "backup.velero.io/backup-volumes";
/// Annotation on a pod: its volumes whose files are not backed up, separated by commas.
pub const BACKUP_VOLUMES_EXCLUDES: &str = "backup.velero.io/backup-volumes-excludes";
/// Annotation on a Backup or Restore: how long the transfer of one of its volumes may take.
pub const POD_VOLUME_TIMEOUT: &str = "velero.io/pod-volume-timeout";
/// Annotation an action sets on an item at backup: the additional items it returned are included whatever the filters say.
/// Internal, and removed before the item is stored.
pub const MUST_INCLUDE_ADDITIONAL_ITEMS: &str = "backup.velero.io/must-include-additional-items";
/// The same at restore, since 1.18.3.
pub const RESTORE_MUST_INCLUDE_ADDITIONAL_ITEMS: &str = "restore.velero.io/must-include-additional-items";
/// Annotation on a backup: version of the server's cluster (`v1.34.1`).
pub const SOURCE_CLUSTER_K8S_GIT_VERSION: &str = "velero.io/source-cluster-k8s-gitversion";
/// Annotation on a backup: major version of the server's cluster.
pub const SOURCE_CLUSTER_K8S_MAJOR: &str = "velero.io/source-cluster-k8s-major-version";
/// Annotation on a backup: minor version of the server's cluster.
pub const SOURCE_CLUSTER_K8S_MINOR: &str = "velero.io/source-cluster-k8s-minor-version";
/// Annotation on a backup: the resource timeout it was made with.
pub const RESOURCE_TIMEOUT: &str = "velero.io/resource-timeout";
/// Annotation on a pod volume backup: the claim whose volume it is of.
pub const PVC_NAME: &str = "velero.io/pvc-name";
/// Annotation: a record of a plugin's work that the server keeps on the plugin's behalf.
pub const KEPT_BY_SERVER: &str = "plimsoll.dev/kept-by-server";
/// Annotation: the VolumeSnapshotLocation of a plugin's snapshot.
pub const SNAPSHOT_LOCATION: &str = "plimsoll.dev/snapshot-location";
/// Annotation on a volume transfer of ours: which mover does it, where its type leaves a choice.
pub const MOVER: &str = "plimsoll.dev/mover";
/// Annotation on a volume transfer: how often a node has taken it up.
pub const ATTEMPTS: &str = "plimsoll.dev/attempts";
/// Annotation on a volume transfer: how many of those times somebody else's lock of the repository kept it from beginning.
pub const LOCKED_OUT: &str = "plimsoll.dev/attempts-locked-out";
/// Annotation on a transfer into a volume that was empty when its first attempt began: the node's boot at that time. As long as it
/// lasts, what is in the volume is what was written.
pub const WRITTEN_SINCE: &str = "plimsoll.dev/written-since";
/// Annotation on a PodVolumeRestore: the data is in the volume, and how that ended. From then on nothing is moved again.
pub const MOVED: &str = "plimsoll.dev/moved";
/// Annotation on an agent's Lease: where it tells how far its transfers are, straight from its memory.
pub const PROGRESS_ADDRESS: &str = "plimsoll.dev/progress-address";
/// Annotation on the server's Lease: whether backups that do not say have the files of all volumes backed up. The command line,
/// which plans backups by itself, reads it there.
pub const DEFAULT_VOLUMES_TO_FS_BACKUP: &str = "plimsoll.dev/default-volumes-to-fs-backup";
/// Annotation on a DataUpload or DataDownload that has ended: what was made for it is gone, and a restored claim has its volume.
pub const SETTLED: &str = "plimsoll.dev/settled";
/// Label on what was made for a volume transfer: the transfer's uid.
pub const TRANSFER_UID: &str = "plimsoll.dev/transfer-uid";
/// Finalizer on a Restore: its files in the bucket are deleted before it is.
pub const RESTORE_FINALIZER: &str = "restores.velero.io/external-resources-finalizer";

/// Longest value a label may have.
const LABEL_VALUE_MAX: usize = 63;
/// Hex digits of the hash that ends a shortened value.
const HASH_DIGITS: usize = 6;

/// The label value for a name: the name itself, or for one longer than a label may be its first 57 bytes and six hex digits
/// of its SHA-256. Every Velero label that carries a name is made like this, so ours must be found by the same selector.
pub fn valid_name(name: &str) -> String {
    if name.len() <= LABEL_VALUE_MAX {
        return name.to_owned();
    }
    let digest = Sha256::digest(name.as_bytes());
    let hash = u32::from_be_bytes([0, digest[0], digest[1], digest[2]]);
    // Names of Kubernetes objects are ASCII; anything else is cut at a whole character rather than refused.
    format!("{}{hash:0HASH_DIGITS$x}", &name[..name.floor_char_boundary(LABEL_VALUE_MAX - HASH_DIGITS)])
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
    fn a_name_is_never_cut_inside_a_character() {
        assert!(valid_name(&"é".repeat(40)).len() <= 63);
    }
}
