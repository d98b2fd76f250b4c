//! Kanister's functions: what each one is called, takes and gives, and how it is done.
//!
//! A function has no state of its own: what belongs to one run is in its [`Call`], so that two phases of the same function never
//! touch each other's.

pub mod arguments;
mod call;
mod csi;
mod data;
mod exec;
mod kube_ops;
mod location_delete;
mod log;
pub mod movers;
mod own;
mod pods;
mod restic;
mod save;
mod snapshots;
pub mod table;
mod talk;
mod tasks;
mod wait;

pub use call::{Again, Call, Direction, Function, Gauge, Host, Moved, PodStyle, Tools, identity_of};
pub use pods::{OWN_KANDO, remove_pods};
pub use restic::Saved;

/// The function of this name, if this program can run it.
pub fn find(name: &str) -> Option<&'static dyn Function> {
    Some(match name {
        "KubeTask" => &tasks::KubeTask,
        "KubeExec" => &tasks::KubeExec,
        "KubeExecAll" => &tasks::KubeExecAll,
        "PrepareData" => &tasks::PrepareData,
        "MultiContainerRun" => &tasks::MultiContainerRun,
        "KubeOps" => &kube_ops::KubeOps,
        "ScaleWorkload" => &kube_ops::ScaleWorkload,
        "Wait" => &wait::Wait,
        "WaitV2" => &wait::WaitV2,
        "LocationDelete" => &location_delete::LocationDelete,
        "BackupData" => &data::BackupData,
        "BackupDataAll" => &data::BackupDataAll,
        "BackupDataStats" => &data::BackupDataStats,
        "RestoreData" => &data::RestoreData,
        "RestoreDataAll" => &data::RestoreDataAll,
        "CopyVolumeData" => &data::CopyVolumeData,
        "DeleteData" => &data::DeleteData,
        "DeleteDataAll" => &data::DeleteDataAll,
        "CheckRepository" => &data::CheckRepository,
        "CreateCSISnapshot" => &csi::CreateSnapshot,
        "CreateCSISnapshotStatic" => &csi::CreateSnapshotStatic,
        "RestoreCSISnapshot" => &csi::RestoreSnapshot,
        "DeleteCSISnapshot" => &csi::DeleteSnapshot,
        "DeleteCSISnapshotContent" => &csi::DeleteSnapshotContent,
        _ => return None,
    })
}
