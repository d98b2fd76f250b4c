//! Kanister's functions: specification and implementation.
//!
//! A function is stateless: the state of one run is in its [`Call`], so that two phases with the same function are independent.

pub mod arguments;
mod backup_path;
mod call;
mod commands;
mod container_mover;
mod csi_snapshot;
pub mod data_movers;
mod exec;
pub mod function_spec;
mod kube_ops;
mod location_delete;
mod phase_meters;
mod pod_io;
mod pod_log;
mod pods;
mod restic;
mod snapshot_objects;
mod volume_data;
mod wait;

pub use call::{Call, Function, Host, PodSettings, ResumePolicy, ToolsImage, phase_identity};
pub use phase_meters::{Direction, PhaseMeters, TransferProgress};
pub use pods::{OWN_KANDO, remove_pods};
pub use restic::BackupSummary;

/// The function with this name, if it is supported.
pub fn find(name: &str) -> Option<&'static dyn Function> {
    Some(match name {
        "KubeTask" => &commands::KubeTask,
        "KubeExec" => &commands::KubeExec,
        "KubeExecAll" => &commands::KubeExecAll,
        "PrepareData" => &commands::PrepareData,
        "MultiContainerRun" => &commands::MultiContainerRun,
        "KubeOps" => &kube_ops::KubeOps,
        "ScaleWorkload" => &kube_ops::ScaleWorkload,
        "Wait" => &wait::Wait,
        "WaitV2" => &wait::WaitV2,
        "LocationDelete" => &location_delete::LocationDelete,
        "BackupData" => &volume_data::BackupData,
        "BackupDataAll" => &volume_data::BackupDataAll,
        "BackupDataStats" => &volume_data::BackupDataStats,
        "RestoreData" => &volume_data::RestoreData,
        "RestoreDataAll" => &volume_data::RestoreDataAll,
        "CopyVolumeData" => &volume_data::CopyVolumeData,
        "DeleteData" => &volume_data::DeleteData,
        "DeleteDataAll" => &volume_data::DeleteDataAll,
        "CheckRepository" => &volume_data::CheckRepository,
        "CreateCSISnapshot" => &csi_snapshot::CreateSnapshot,
        "CreateCSISnapshotStatic" => &csi_snapshot::CreateSnapshotStatic,
        "RestoreCSISnapshot" => &csi_snapshot::RestoreSnapshot,
        "DeleteCSISnapshot" => &csi_snapshot::DeleteSnapshot,
        "DeleteCSISnapshotContent" => &csi_snapshot::DeleteSnapshotContent,
        _ => return None,
    })
}
