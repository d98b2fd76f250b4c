//! The progress and the result of a PodVolumeBackup that a phase created.

use plimsoll_api::velero::v1::{PodVolumeBackup, TransferPhase};
use plimsoll_blueprint::functions::{BackupSummary, Direction, TransferProgress};
use plimsoll_volumes::transfer::INCOMPLETE;
use serde_json::json;

use super::mover_job::short_id;

/// The progress of a transfer. A total that still grows is not reported.
pub fn progress(transfer: &PodVolumeBackup) -> TransferProgress {
    let status = json!(transfer.status);
    let bytes = &status["progress"];
    let grows = status["plimsoll"]["percent"].as_str().is_none_or(|percent| percent.starts_with(['~', '≥']));
    TransferProgress {
        direction: Direction::Upload,
        read: bytes["bytesDone"].as_u64().unwrap_or(0),
        total: bytes["totalBytes"].as_u64().filter(|_| !grows),
        ..TransferProgress::default()
    }
}

/// The summary of a transfer that has ended, or why it failed.
pub fn summary(transfer: &PodVolumeBackup) -> Result<BackupSummary, String> {
    let status = json!(transfer.status);
    let message = status["message"].as_str().unwrap_or("no reason reported").to_owned();
    if transfer.phase() != TransferPhase::Completed || message.starts_with(INCOMPLETE) {
        return Err(message);
    }
    Ok(BackupSummary {
        id: short_id(status["snapshotID"].as_str().unwrap_or_default()),
        files: status["fileCount"].as_u64().unwrap_or(0),
        size: status["progress"]["totalBytes"].as_u64().unwrap_or(0),
        added: status["incrementalBytes"].as_u64().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn transfer(status: &Value) -> PodVolumeBackup {
        serde_json::from_value(json!({ "metadata": { "name": "t" }, "spec": {}, "status": status })).unwrap()
    }

    #[test]
    fn a_total_is_reported_once_it_no_longer_grows() {
        let bytes = json!({ "totalBytes": 10, "bytesDone": 4 });
        let growing = progress(&transfer(&json!({ "progress": bytes, "plimsoll": { "percent": "~40.00" } })));
        assert_eq!((growing.read, growing.total), (4, None));
        let known = progress(&transfer(&json!({ "progress": bytes, "plimsoll": { "percent": "40.00" } })));
        assert_eq!((known.read, known.total), (4, Some(10)));
    }

    #[test]
    fn a_transfer_that_lacks_files_has_failed() {
        let ended = |message: &str| {
            transfer(&json!({ "phase": "Completed", "snapshotID": "0123456789", "message": message,
                "progress": { "totalBytes": 10, "bytesDone": 4 }, "fileCount": 2, "incrementalBytes": 3 }))
        };
        let expected = BackupSummary { id: "01234567".into(), files: 2, size: 10, added: 3 };
        assert_eq!(summary(&ended("")), Ok(expected));
        assert!(summary(&ended("Incomplete: 1 files could not be read")).is_err());
        let failed = transfer(&json!({ "phase": "Failed", "message": "PodGone: it is gone" }));
        assert_eq!(summary(&failed), Err("PodGone: it is gone".into()));
    }
}
