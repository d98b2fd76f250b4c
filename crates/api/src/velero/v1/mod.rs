//! `velero.io/v1`.
//!
//! None of these kinds has a status subresource: status is written with `Api::patch`, a merge patch of the object itself.

mod backup;
mod hooks;
mod locations;
mod pod_volume;
mod repository;
mod requests;
mod restore;
mod schedule;
mod uploader;
mod volume_plugin;

pub use backup::{
    Backup, BackupMetadata, BackupPhase, BackupProgress, BackupSpec, BackupStatus, HookStatus, UploaderConfigForBackup,
};
pub use hooks::{
    BackupHooks, BackupResourceHook, BackupResourceHookSpec, ExecHook, ExecRestoreHook, HookErrorMode, InitRestoreHook,
    RestoreHooks, RestoreResourceHook, RestoreResourceHookSpec,
};
pub use locations::{
    AccessMode, BackupStorageLocation, BackupStorageLocationSpec, BackupStorageLocationStatus, LocationPhase,
    ObjectStorageLocation, VolumeSnapshotLocation, VolumeSnapshotLocationSpec, VolumeSnapshotLocationStatus,
};
pub use pod_volume::{
    PodVolumeBackup, PodVolumeBackupSpec, PodVolumeBackupStatus, PodVolumeRestore, PodVolumeRestoreSpec,
    PodVolumeRestoreStatus, TransferPhase, TransferProgress, UploaderType,
};
pub use repository::{
    BackupRepository, BackupRepositorySpec, BackupRepositoryStatus, MaintenanceResult, RepositoryMaintenance,
    RepositoryPhase,
};
pub use requests::{
    DeleteBackupRequest, DeleteBackupRequestPhase, DeleteBackupRequestSpec, DeleteBackupRequestStatus, DownloadRequest,
    DownloadRequestSpec, DownloadRequestStatus, DownloadTarget, DownloadTargetKind, PluginInfo, RequestPhase,
    ServerStatusRequest, ServerStatusRequestSpec, ServerStatusRequestStatus,
};
pub use restore::{
    Restore, RestorePhase, RestoreProgress, RestoreSpec, RestoreStatus, RestoreStatusSpec, UploaderConfigForRestore,
};
pub use schedule::{Schedule, SchedulePhase, ScheduleSpec, ScheduleStatus};
pub use uploader::{UploaderSettings, parallel_files_download, parallel_files_upload, write_sparse_files};
pub use volume_plugin::{
    VolumePluginBackup, VolumePluginBackupSpec, VolumePluginBackupStatus, VolumePluginRestore, VolumePluginRestoreSpec,
    VolumePluginRestoreStatus,
};
