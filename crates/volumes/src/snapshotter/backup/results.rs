//! The results of the snapshots of a backup: entries of `volumesnapshots` and `volumeinfo`.

use jiff::Timestamp;
use plimsoll_archive::volume_info::{
    BackupVolumeInfo, NativeSnapshotInfo, SnapshotInfo, VolumeSnapshot, VolumeSnapshotSpec, VolumeSnapshotStatus,
};
use plimsoll_engine::Error;
use plimsoll_engine::ports::{Effect, VolumeBackupResults};

use super::{SnapshotBackup, TakenSnapshot};
use crate::snapshotter::records::has_failed;
use crate::volume_job::VolumeJob;

impl SnapshotBackup {
    /// The results so far.
    pub(super) async fn results(&self, into: &mut VolumeBackupResults) -> Result<(), Error> {
        let taken = self.state().taken.clone();
        for one in &taken {
            into.volume_plugin_backups.extend(one.moving.live.lock().await.current().await?);
            into.infos.push(info(one));
            into.snapshots.push(one.snapshot.clone());
        }
        let mut state = self.state();
        into.infos.append(&mut state.infos);
        into.errors.append(&mut state.errors);
        into.warnings.append(&mut state.warnings);
        Ok(())
    }

    /// The results after all operations have ended.
    pub async fn final_results(&self, before: &VolumeBackupResults) -> Result<VolumeBackupResults, Error> {
        let mut after = VolumeBackupResults { infos: before.infos.clone(), ..VolumeBackupResults::default() };
        let taken = self.state().taken.clone();
        for mut one in taken {
            let mut live = one.moving.live.lock().await;
            // Its follower may have given up on it.
            live.abandon("it is no longer waited for").await?;
            let record = live.current().await?;
            drop(live);
            if record.as_ref().is_some_and(has_failed) {
                one.snapshot.status.phase = "Failed".into();
            }
            let name = one.snapshot.spec.persistent_volume_name.clone();
            if let Some(known) = after.infos.iter_mut().find(|known| known.volume.pv_name == name) {
                *known = info(&one);
            }
            after.snapshots.push(one.snapshot);
            after.volume_plugin_backups.extend(record);
        }
        Ok(after)
    }
}

/// The entry of a snapshot in `volumesnapshots`.
pub(super) fn snapshot_entry(backup: &VolumeJob, effect: Effect, answer: &Result<String, String>) -> VolumeSnapshot {
    let Effect::Snapshot { location, volume, handle, volume_type, zone, iops } = effect else {
        return VolumeSnapshot::default();
    };
    VolumeSnapshot {
        spec: VolumeSnapshotSpec {
            backup_name: backup.name.clone(),
            backup_uid: backup.uid.clone(),
            location,
            persistent_volume_name: volume,
            provider_volume_id: handle,
            volume_type,
            volume_az: zone,
            volume_iops: iops,
        },
        status: VolumeSnapshotStatus {
            provider_snapshot_id: answer.clone().unwrap_or_default(),
            phase: if answer.is_ok() { "Completed" } else { "Failed" }.into(),
        },
    }
}

fn info(taken: &TakenSnapshot) -> BackupVolumeInfo {
    let succeeded = taken.snapshot.status.phase == "Completed";
    BackupVolumeInfo {
        backup_method: "NativeSnapshot".into(),
        start_timestamp: Some(format!("{:.0}", taken.started)),
        completion_timestamp: Some(format!("{:.0}", Timestamp::now())),
        result: if succeeded { "succeeded" } else { "failed" }.into(),
        snapshot: SnapshotInfo {
            native_snapshot_info: Some(NativeSnapshotInfo::from(&taken.snapshot)),
            ..SnapshotInfo::default()
        },
        ..taken.claim_info.volume_info()
    }
}
