//! Per kind: printer columns, required fields and status subresource, which the Rust types cannot express.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::define;
use crate::{kanister, plimsoll, velero};

/// Additions to a derived definition.
#[derive(Default)]
pub(super) struct Definition {
    pub columns: &'static [Column],
    /// Required fields: path of the object, names of the fields.
    pub required: &'static [(&'static str, &'static [&'static str])],
    /// Only for `plimsoll.dev`: upstream kinds have none, and upstream programs write status as part of the object.
    pub status_subresource: bool,
}

/// A column of `kubectl get`.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub name: &'static str,
    pub type_: &'static str,
    pub format: Option<&'static str>,
    pub path: &'static str,
    pub priority: Option<i32>,
}

const fn column(name: &'static str, type_: &'static str, path: &'static str) -> Column {
    Column { name, type_, format: None, path, priority: None }
}

const fn bytes(name: &'static str, path: &'static str) -> Column {
    Column { name, type_: "integer", format: Some("int64"), path, priority: None }
}

const fn wide(column: Column) -> Column {
    Column { priority: Some(10), ..column }
}

const STATUS: Column = column("Status", "string", ".status.phase");
const STARTED: Column = column("Started", "date", ".status.startTimestamp");
const BYTES_DONE: Column = bytes("Bytes Done", ".status.progress.bytesDone");
const TOTAL_BYTES: Column = bytes("Total Bytes", ".status.progress.totalBytes");
const INCREMENTAL_BYTES: Column = wide(bytes("Incremental Bytes", ".status.incrementalBytes"));
const STORAGE_LOCATION: Column = column("Storage Location", "string", ".spec.backupStorageLocation");
const AGE: Column = column("Age", "date", ".metadata.creationTimestamp");
const NODE: Column = column("Node", "string", ".status.node");
/// Added to every kind that makes progress and has no progress column upstream.
const PROGRESS: Column = column("Progress", "string", ".status.plimsoll.percent");

const EXEC_COMMAND: &[&str] = &["command"];

pub(super) fn all() -> Vec<CustomResourceDefinition> {
    let mut all = velero_v1();
    all.extend(velero_transfers());
    all.extend(velero_requests());
    all.extend(kanister_v1alpha1());
    all.push(define::<plimsoll::v1alpha1::Operation>(&OPERATION));
    all
}

fn velero_v1() -> Vec<CustomResourceDefinition> {
    use velero::v1::{Backup, BackupRepository, BackupStorageLocation, Restore, Schedule, VolumeSnapshotLocation};
    vec![
        define::<Backup>(&BACKUP),
        define::<Restore>(&RESTORE),
        define::<Schedule>(&SCHEDULE),
        define::<BackupStorageLocation>(&BACKUP_STORAGE_LOCATION),
        define::<VolumeSnapshotLocation>(&VOLUME_SNAPSHOT_LOCATION),
        define::<BackupRepository>(&BACKUP_REPOSITORY),
    ]
}

fn velero_transfers() -> Vec<CustomResourceDefinition> {
    use velero::v1::{PodVolumeBackup, PodVolumeRestore, VolumePluginBackup, VolumePluginRestore};
    use velero::v2alpha1::{DataDownload, DataUpload};
    vec![
        define::<PodVolumeBackup>(&POD_VOLUME_BACKUP),
        define::<PodVolumeRestore>(&POD_VOLUME_RESTORE),
        define::<DataUpload>(&DATA_UPLOAD),
        define::<DataDownload>(&DATA_DOWNLOAD),
        define::<VolumePluginBackup>(&VOLUME_PLUGIN),
        define::<VolumePluginRestore>(&VOLUME_PLUGIN),
    ]
}

fn velero_requests() -> Vec<CustomResourceDefinition> {
    use velero::v1::{DeleteBackupRequest, DownloadRequest, ServerStatusRequest};
    vec![
        define::<DeleteBackupRequest>(&DELETE_BACKUP_REQUEST),
        define::<DownloadRequest>(&DOWNLOAD_REQUEST),
        define::<ServerStatusRequest>(&SERVER_STATUS_REQUEST),
    ]
}

fn kanister_v1alpha1() -> Vec<CustomResourceDefinition> {
    use kanister::v1alpha1::{ActionSet, Blueprint, Profile};
    vec![
        define::<ActionSet>(&ACTION_SET),
        define::<Blueprint>(&Definition { columns: &[], required: &[], status_subresource: false }),
        define::<Profile>(&Definition { columns: &[], required: &[], status_subresource: false }),
    ]
}

/// Upstream has no columns here, so `kubectl get` adds the age; with a column defined it no longer does.
const BACKUP: Definition = Definition {
    columns: &[STATUS, PROGRESS, AGE],
    required: &[
        ("spec.hooks.resources[]", &["name"]),
        ("spec.hooks.resources[].pre[]", &["exec"]),
        ("spec.hooks.resources[].pre[].exec", EXEC_COMMAND),
        ("spec.hooks.resources[].post[]", &["exec"]),
        ("spec.hooks.resources[].post[].exec", EXEC_COMMAND),
    ],
    status_subresource: false,
};

const RESTORE: Definition = Definition {
    columns: &[STATUS, PROGRESS, AGE],
    required: &[("spec.hooks.resources[]", &["name"]), ("spec.hooks.resources[].postHooks[].exec", EXEC_COMMAND)],
    status_subresource: false,
};

const SCHEDULE: Definition = Definition {
    columns: &[
        STATUS,
        column("Schedule", "string", ".spec.schedule"),
        column("LastBackup", "date", ".status.lastBackup"),
        AGE,
        column("Paused", "boolean", ".spec.paused"),
    ],
    required: &[
        ("spec", &["schedule", "template"]),
        ("spec.template.hooks.resources[]", &["name"]),
        ("spec.template.hooks.resources[].pre[]", &["exec"]),
        ("spec.template.hooks.resources[].pre[].exec", EXEC_COMMAND),
        ("spec.template.hooks.resources[].post[]", &["exec"]),
        ("spec.template.hooks.resources[].post[].exec", EXEC_COMMAND),
    ],
    status_subresource: false,
};

const BACKUP_STORAGE_LOCATION: Definition = Definition {
    columns: &[
        column("Phase", "string", ".status.phase"),
        column("Last Validated", "date", ".status.lastValidationTime"),
        AGE,
        column("Default", "boolean", ".spec.default"),
    ],
    required: &[("spec", &["objectStorage", "provider"]), ("spec.objectStorage", &["bucket"])],
    status_subresource: false,
};

const VOLUME_SNAPSHOT_LOCATION: Definition =
    Definition { columns: &[], required: &[("spec", &["provider"])], status_subresource: false };

const BACKUP_REPOSITORY: Definition = Definition {
    columns: &[AGE, column("Repository Type", "string", ".spec.repositoryType")],
    required: &[("spec", &["backupStorageLocation", "maintenanceFrequency", "volumeNamespace"])],
    status_subresource: false,
};

const POD_VOLUME_BACKUP: Definition = Definition {
    columns: &[
        STATUS,
        STARTED,
        BYTES_DONE,
        TOTAL_BYTES,
        INCREMENTAL_BYTES,
        STORAGE_LOCATION,
        AGE,
        NODE,
        column("Uploader", "string", ".spec.uploaderType"),
        PROGRESS,
    ],
    required: &[("spec", &["backupStorageLocation", "node", "pod", "repoIdentifier", "volume"])],
    status_subresource: false,
};

const POD_VOLUME_RESTORE: Definition = Definition {
    columns: &[
        STATUS,
        STARTED,
        BYTES_DONE,
        TOTAL_BYTES,
        STORAGE_LOCATION,
        AGE,
        NODE,
        column("Uploader Type", "string", ".spec.uploaderType"),
        PROGRESS,
    ],
    required: &[(
        "spec",
        &["backupStorageLocation", "pod", "repoIdentifier", "snapshotID", "sourceNamespace", "volume"],
    )],
    status_subresource: false,
};

const DATA_UPLOAD: Definition = Definition {
    columns: &[STATUS, STARTED, BYTES_DONE, TOTAL_BYTES, INCREMENTAL_BYTES, STORAGE_LOCATION, AGE, NODE, PROGRESS],
    required: &[
        ("spec", &["backupStorageLocation", "operationTimeout", "snapshotType", "sourceNamespace", "sourcePVC"]),
        ("spec.csiSnapshot", &["storageClass", "volumeSnapshot"]),
    ],
    status_subresource: false,
};

const DATA_DOWNLOAD: Definition = Definition {
    columns: &[STATUS, STARTED, BYTES_DONE, TOTAL_BYTES, STORAGE_LOCATION, AGE, NODE, PROGRESS],
    required: &[
        ("spec", &["backupStorageLocation", "operationTimeout", "snapshotID", "sourceNamespace", "targetVolume"]),
        ("spec.targetVolume", &["namespace", "pv", "pvc"]),
    ],
    status_subresource: false,
};

/// No required fields: a plugin creates object and status in one call and may leave out any field.
const VOLUME_PLUGIN: Definition = Definition {
    columns: &[STATUS, STARTED, BYTES_DONE, TOTAL_BYTES, AGE, PROGRESS],
    required: &[],
    status_subresource: false,
};

const DELETE_BACKUP_REQUEST: Definition = Definition {
    columns: &[column("BackupName", "string", ".spec.backupName"), STATUS, PROGRESS],
    required: &[("spec", &["backupName"])],
    status_subresource: false,
};

const DOWNLOAD_REQUEST: Definition = Definition {
    columns: &[],
    required: &[("spec", &["target"]), ("spec.target", &["kind", "name"])],
    status_subresource: false,
};

const SERVER_STATUS_REQUEST: Definition =
    Definition { columns: &[], required: &[("status.plugins[]", &["kind", "name"])], status_subresource: false };

/// Kanister has a progress column of its own.
const ACTION_SET: Definition = Definition {
    columns: &[
        column("Progress", "string", ".status.progress.percentCompleted"),
        column("SizeDownloadedB", "integer", ".status.progress.sizeDownloadedB"),
        column("SizeUploadedB", "integer", ".status.progress.sizeUploadedB"),
        column("EstimatedDownloadSizeB", "integer", ".status.progress.estimatedDownloadSizeB"),
        column("EstimatedUploadSizeB", "integer", ".status.progress.estimatedUploadSizeB"),
        column("Running Phase", "string", ".status.progress.runningPhase"),
        Column {
            format: Some("date-time"),
            ..column("Last Transition Time", "string", ".status.progress.lastTransitionTime")
        },
        column("State", "string", ".status.state"),
    ],
    required: &[],
    status_subresource: false,
};

const OPERATION: Definition = Definition {
    columns: &[
        column("Verb", "string", ".spec.verb"),
        column("Subject", "string", ".spec.subject.name"),
        column("State", "string", ".status.state"),
        PROGRESS,
        column("Task", "string", ".status.plimsoll.task"),
        AGE,
    ],
    required: &[("spec", &["subject", "verb"]), ("spec.subject", &["apiVersion", "kind", "name"])],
    status_subresource: true,
};
