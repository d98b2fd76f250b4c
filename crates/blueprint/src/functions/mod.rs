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
mod environment;
mod exec;
pub mod function_spec;
mod json_path;
mod kopia;
mod kopia_server;
mod kube_ops;
mod location_delete;
mod phase_meters;
mod pod_io;
mod pod_log;
mod pod_override;
mod pods;
mod restic;
mod snapshot_objects;
mod tools_container;
mod volume_data;
pub mod wait;

use self::ResumePolicy::{Never, Repeat, Resume};

pub use call::{Call, Function, Host, PodSettings, ResumePolicy, ToolsImage, phase_identity};
pub use environment::Environment;
pub use phase_meters::{Direction, PhaseMeters, TransferProgress};
pub use pods::{OWN_KANDO, remove_pods};
pub use restic::BackupSummary;

/// The function with this name, if it is supported.
pub fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

const fn function(name: &'static str, resume_policy: ResumePolicy, run: call::Run) -> Function {
    Function { name, resume_policy, run }
}

/// The supported functions. Those of volume data and CSI snapshots can be repeated: a second snapshot, a second restore of the same
/// files, objects with the same names.
const FUNCTIONS: &[Function] = &[
    function("KubeTask", Resume, |call| Box::pin(commands::kube_task(call))),
    function("KubeExec", Never, |call| Box::pin(commands::kube_exec(call))),
    function("KubeExecAll", Never, |call| Box::pin(commands::kube_exec_all(call))),
    function("PrepareData", Resume, |call| Box::pin(commands::prepare_data(call))),
    function("MultiContainerRun", Resume, |call| Box::pin(commands::multi_container_run(call))),
    function("KubeOps", Repeat, |call| Box::pin(kube_ops::kube_ops(call))),
    function("ScaleWorkload", Repeat, |call| Box::pin(kube_ops::scale_workload(call))),
    function("Wait", Repeat, |call| Box::pin(wait::wait(call))),
    function("WaitV2", Repeat, |call| Box::pin(wait::wait_v2(call))),
    function("LocationDelete", Repeat, |call| Box::pin(location_delete::location_delete(call))),
    function("BackupData", Repeat, |call| Box::pin(volume_data::backup_data(call))),
    function("BackupDataAll", Repeat, |call| Box::pin(volume_data::backup_data_all(call))),
    function("BackupDataStats", Repeat, |call| Box::pin(volume_data::backup_data_stats(call))),
    function("RestoreData", Repeat, |call| Box::pin(volume_data::restore_data(call))),
    function("RestoreDataAll", Repeat, |call| Box::pin(volume_data::restore_data_all(call))),
    function("CopyVolumeData", Repeat, |call| Box::pin(volume_data::copy_volume_data(call))),
    function("DeleteData", Repeat, |call| Box::pin(volume_data::delete_data(call))),
    function("DeleteDataAll", Repeat, |call| Box::pin(volume_data::delete_data_all(call))),
    function("CheckRepository", Repeat, |call| Box::pin(volume_data::check_repository(call))),
    function("BackupDataUsingKopiaServer", Repeat, |call| Box::pin(kopia_server::backup_data(call))),
    function("RestoreDataUsingKopiaServer", Repeat, |call| Box::pin(kopia_server::restore_data(call))),
    function("DeleteDataUsingKopiaServer", Repeat, |call| Box::pin(kopia_server::delete_data(call))),
    function("CreateCSISnapshot", Repeat, |call| Box::pin(csi_snapshot::create_snapshot(call))),
    function("CreateCSISnapshotStatic", Repeat, |call| Box::pin(csi_snapshot::create_snapshot_static(call))),
    function("RestoreCSISnapshot", Repeat, |call| Box::pin(csi_snapshot::restore_snapshot(call))),
    function("DeleteCSISnapshot", Repeat, |call| Box::pin(csi_snapshot::delete_snapshot(call))),
    function("DeleteCSISnapshotContent", Repeat, |call| Box::pin(csi_snapshot::delete_snapshot_content(call))),
];
