//! Objects for tests, built on the types: `Backup::fixture().in_progress()`.
//!
//! Every fixture is in the namespace `velero`, has a name, a uid and a creation time, and no status.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::go::GoDuration;
use crate::kanister::v1alpha1 as kanister;
use crate::plimsoll::v1alpha1::{Operation, OperationSpec, OperationState, OperationStatus, SubjectReference};
use crate::velero::v1::{
    Backup, BackupPhase, BackupProgress, BackupSpec, BackupStatus, BackupStorageLocation, BackupStorageLocationSpec,
    ObjectStorageLocation, PodVolumeBackup, PodVolumeBackupSpec, PodVolumeBackupStatus, PodVolumeRestore,
    PodVolumeRestoreSpec, PodVolumeRestoreStatus, Restore, RestorePhase, RestoreProgress, RestoreSpec, RestoreStatus,
    Schedule, ScheduleSpec, TransferPhase, TransferProgress, UploaderType,
};

/// Creation time of every fixture: 2026-01-02T03:04:05Z.
pub fn creation_time() -> Time {
    Time(jiff::Timestamp::from_second(1_767_323_045).unwrap_or_default())
}

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("velero".to_owned()),
        uid: Some(format!("uid-of-{name}")),
        creation_timestamp: Some(creation_time()),
        ..ObjectMeta::default()
    }
}

/// Renames a fixture, for tests that need two.
macro_rules! named {
    ($($kind:ty),* $(,)?) => {$(
        impl $kind {
            /// The same object with another name and uid.
            #[must_use]
            pub fn named(mut self, name: &str) -> Self {
                self.metadata.name = Some(name.to_owned());
                self.metadata.uid = Some(format!("uid-of-{name}"));
                self
            }
        }
    )*};
}

named!(
    Backup,
    Restore,
    Schedule,
    BackupStorageLocation,
    PodVolumeBackup,
    PodVolumeRestore,
    kanister::ActionSet,
    kanister::Blueprint,
    Operation,
);

impl Backup {
    /// A backup of the namespace `demo`, new.
    pub fn fixture() -> Self {
        let spec = BackupSpec {
            included_namespaces: vec!["demo".to_owned()],
            storage_location: Some("default".to_owned()),
            ttl: Some(GoDuration::from_secs(30 * 24 * 3600)),
            ..BackupSpec::default()
        };
        Self { metadata: metadata("demo"), spec, status: None }
    }

    /// In the given phase, started at its creation time.
    #[must_use]
    pub fn in_phase(mut self, phase: BackupPhase) -> Self {
        let status = self.status.get_or_insert_with(BackupStatus::default);
        status.phase = Some(phase);
        status.start_timestamp = Some(creation_time());
        self
    }

    /// In progress.
    #[must_use]
    pub fn in_progress(self) -> Self {
        self.in_phase(BackupPhase::InProgress)
    }

    /// Completed.
    #[must_use]
    pub fn completed(self) -> Self {
        self.in_phase(BackupPhase::Completed)
    }

    /// With item progress.
    #[must_use]
    pub fn with_items(mut self, done: i64, total: i64) -> Self {
        let status = self.status.get_or_insert_with(BackupStatus::default);
        status.progress =
            Some(BackupProgress { total_items: Some(total), items_backed_up: Some(done), ..BackupProgress::default() });
        self
    }
}

impl Restore {
    /// A restore of the backup `demo`, new.
    pub fn fixture() -> Self {
        let spec = RestoreSpec { backup_name: Some("demo".to_owned()), ..RestoreSpec::default() };
        Self { metadata: metadata("demo-restore"), spec, status: None }
    }

    /// In the given phase, started at its creation time.
    #[must_use]
    pub fn in_phase(mut self, phase: RestorePhase) -> Self {
        let status = self.status.get_or_insert_with(RestoreStatus::default);
        status.phase = Some(phase);
        status.start_timestamp = Some(creation_time());
        self
    }

    /// In progress.
    #[must_use]
    pub fn in_progress(self) -> Self {
        self.in_phase(RestorePhase::InProgress)
    }

    /// Completed.
    #[must_use]
    pub fn completed(self) -> Self {
        self.in_phase(RestorePhase::Completed)
    }

    /// With item progress.
    #[must_use]
    pub fn with_items(mut self, done: i64, total: i64) -> Self {
        let status = self.status.get_or_insert_with(RestoreStatus::default);
        status.progress = Some(RestoreProgress {
            total_items: Some(total),
            items_restored: Some(done),
            ..RestoreProgress::default()
        });
        self
    }
}

impl Schedule {
    /// A backup of the namespace `demo` every night at 01:00.
    pub fn fixture() -> Self {
        let spec = ScheduleSpec {
            schedule: Some("0 1 * * *".to_owned()),
            template: Some(Backup::fixture().spec),
            ..ScheduleSpec::default()
        };
        Self { metadata: metadata("nightly"), spec, status: None }
    }
}

impl BackupStorageLocation {
    /// The default location: the bucket `backups` of an S3 store.
    pub fn fixture() -> Self {
        let store = ObjectStorageLocation { bucket: Some("backups".to_owned()), ..ObjectStorageLocation::default() };
        let spec = BackupStorageLocationSpec {
            provider: Some("aws".to_owned()),
            object_storage: Some(store),
            default: Some(true),
            ..BackupStorageLocationSpec::default()
        };
        Self { metadata: metadata("default"), spec, status: None }
    }
}

fn pod() -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some("demo".to_owned()),
        name: Some("db-0".to_owned()),
        uid: Some("uid-of-db-0".to_owned()),
        ..ObjectReference::default()
    }
}

fn bytes(done: i64, total: i64) -> TransferProgress {
    TransferProgress { total_bytes: Some(total), bytes_done: Some(done), ..TransferProgress::default() }
}

impl PodVolumeBackup {
    /// A backup of the volume `data` of the pod `demo/db-0`, new.
    pub fn fixture() -> Self {
        let spec = PodVolumeBackupSpec {
            node: Some("node-1".to_owned()),
            pod: Some(pod()),
            volume: Some("data".to_owned()),
            backup_storage_location: Some("default".to_owned()),
            repo_identifier: Some(String::new()),
            uploader_type: Some(UploaderType::Kopia),
            ..PodVolumeBackupSpec::default()
        };
        Self { metadata: metadata("demo-data"), spec, status: None }
    }

    /// In progress, with byte progress.
    #[must_use]
    pub fn in_progress(mut self, done: i64, total: i64) -> Self {
        let status = self.status.get_or_insert_with(PodVolumeBackupStatus::default);
        status.phase = Some(TransferPhase::InProgress);
        status.start_timestamp = Some(creation_time());
        status.progress = Some(bytes(done, total));
        self
    }
}

impl PodVolumeRestore {
    /// A restore of the volume `data` of the pod `demo/db-0`, new.
    pub fn fixture() -> Self {
        let spec = PodVolumeRestoreSpec {
            pod: Some(pod()),
            volume: Some("data".to_owned()),
            backup_storage_location: Some("default".to_owned()),
            repo_identifier: Some(String::new()),
            uploader_type: Some(UploaderType::Kopia),
            snapshot_id: Some("snapshot-1".to_owned()),
            source_namespace: Some("demo".to_owned()),
            ..PodVolumeRestoreSpec::default()
        };
        Self { metadata: metadata("demo-restore-data"), spec, status: None }
    }

    /// In progress, with byte progress.
    #[must_use]
    pub fn in_progress(mut self, done: i64, total: i64) -> Self {
        let status = self.status.get_or_insert_with(PodVolumeRestoreStatus::default);
        status.phase = Some(TransferPhase::InProgress);
        status.start_timestamp = Some(creation_time());
        status.progress = Some(bytes(done, total));
        self
    }
}

impl kanister::ActionSet {
    /// The action `backup` of the blueprint `demo` on the StatefulSet `demo/db`, new.
    pub fn fixture() -> Self {
        let object = kanister::ObjectReference {
            kind: Some("StatefulSet".to_owned()),
            name: Some("db".to_owned()),
            namespace: Some("demo".to_owned()),
            ..kanister::ObjectReference::default()
        };
        let action = kanister::ActionSpec {
            name: Some("backup".to_owned()),
            blueprint: Some("demo".to_owned()),
            object: Some(object),
            ..kanister::ActionSpec::default()
        };
        let spec = kanister::ActionSetSpec { actions: vec![action], ..kanister::ActionSetSpec::default() };
        Self { metadata: metadata("backup-db"), spec, status: None }
    }
}

impl kanister::Blueprint {
    /// One action `backup` with one phase `dump`.
    pub fn fixture() -> Self {
        let phase = kanister::BlueprintPhase {
            func: Some("KubeExec".to_owned()),
            name: Some("dump".to_owned()),
            ..kanister::BlueprintPhase::default()
        };
        let action = kanister::BlueprintAction { phases: vec![phase], ..kanister::BlueprintAction::default() };
        let mut fields = kanister::BlueprintFields::default();
        fields.actions.insert("backup".to_owned(), action);
        Self { metadata: metadata("demo"), spec: fields }
    }
}

impl Operation {
    /// The operation of [`Backup::fixture`], not started.
    pub fn fixture() -> Self {
        let subject = SubjectReference {
            api_version: Some("velero.io/v1".to_owned()),
            kind: Some("Backup".to_owned()),
            name: Some("demo".to_owned()),
            uid: Some("uid-of-demo".to_owned()),
            ..SubjectReference::default()
        };
        let spec =
            OperationSpec { subject: Some(subject), verb: Some("backup".to_owned()), ..OperationSpec::default() };
        Self { metadata: metadata("backup-demo"), spec, status: None }
    }

    /// In the first attempt of the first leader.
    #[must_use]
    pub fn running(mut self) -> Self {
        let status = self.status.get_or_insert_with(OperationStatus::default);
        status.state = Some(OperationState::Running);
        status.attempt = Some(1);
        status.epoch = Some(1);
        status.start_timestamp = Some(creation_time());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate;

    #[test]
    fn every_fixture_is_valid() {
        let fixtures = [
            serde_json::to_value(Backup::fixture().in_progress().with_items(1, 2)).unwrap(),
            serde_json::to_value(Restore::fixture().completed().with_items(2, 2)).unwrap(),
            serde_json::to_value(Schedule::fixture()).unwrap(),
            serde_json::to_value(BackupStorageLocation::fixture()).unwrap(),
            serde_json::to_value(PodVolumeBackup::fixture().in_progress(1, 2)).unwrap(),
            serde_json::to_value(PodVolumeRestore::fixture().in_progress(1, 2)).unwrap(),
            serde_json::to_value(kanister::ActionSet::fixture()).unwrap(),
            serde_json::to_value(kanister::Blueprint::fixture()).unwrap(),
            serde_json::to_value(Operation::fixture().running()).unwrap(),
        ];
        for fixture in fixtures {
            assert_eq!(validate::check(&fixture), Ok(()));
        }
    }
}
