//! What the PodVolumeBackup of a volume has of its data.

use plimsoll_api::labels;
use plimsoll_api::velero::v1::{PodVolumeBackup, TransferPhase};

use crate::transfer::INCOMPLETE;

/// Whether it is the backup of a PersistentVolumeClaim.
pub fn is_of_claim(backup: &PodVolumeBackup) -> bool {
    let has_tag = backup.spec.tags.get("pvc-uid").is_some_and(|uid| !uid.is_empty());
    has_tag || backup.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(labels::PVC_NAME))
}

/// Whether a volume can be restored.
pub(super) fn is_restorable(backup: &PodVolumeBackup) -> bool {
    let snapshot = backup.status.as_ref().and_then(|status| status.snapshot_id.as_deref()).unwrap_or_default();
    backup.phase() == TransferPhase::Completed && !snapshot.is_empty()
}

/// The data that a restorable volume lacks.
pub(super) fn shortcoming(backup: &PodVolumeBackup) -> Option<&str> {
    let message = backup.status.as_ref().and_then(|status| status.message.as_deref());
    message.filter(|message| is_restorable(backup) && message.starts_with(INCOMPLETE))
}

/// Why the data of a volume is lost, if it is. A completed backup without a snapshot had no data.
pub(super) fn loss_reason(backup: &PodVolumeBackup) -> Option<String> {
    let message = backup.status.as_ref().and_then(|status| status.message.as_deref()).unwrap_or_default();
    match backup.phase() {
        TransferPhase::Completed => None,
        TransferPhase::Canceled => Some("its backup was cancelled".into()),
        TransferPhase::Failed if message.is_empty() => Some("its backup failed without a message".into()),
        TransferPhase::Failed => Some(format!("its backup failed: {message}")),
        phase => Some(format!("its backup has not ended: it is {phase}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_backup_that_could_not_read_everything_stays_known_as_that() {
        let backup = |message: &str, snapshot: &str| -> PodVolumeBackup {
            let status = json!({ "phase": "Completed", "message": message, "snapshotID": snapshot });
            serde_json::from_value(json!({ "metadata": {}, "spec": {}, "status": status })).unwrap()
        };
        let words = "Incomplete: 1 files could not be read";
        assert_eq!(shortcoming(&backup(words, "0123")), Some(words));
        assert_eq!(shortcoming(&backup(words, "")), None, "there is nothing to restore");
        assert_eq!(shortcoming(&backup("no lock file was kept", "0123")), None);
    }
}
