//! The work of volumes, planned with the backup: what each will take, before its first byte.

use std::time::Duration;

use plimsoll_engine::Error;
use plimsoll_engine::backup::BackupPlan;
use plimsoll_engine::backup::actions::ItemId;
use plimsoll_engine::cluster::Cluster;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::item_operations::task_name;
use plimsoll_engine::stages::Stages;
use plimsoll_operations::HistoryRecord;
use plimsoll_progress::{Basis, Task};
use tracing::debug;

use crate::csi::CLAIM_ACTION;
use crate::fs_backup::FsBackupPolicy;
use crate::usual_work::{movement_work, snapshot_work, transfer_work};
use crate::volume_plan::{self, Method, PlannedVolume, SnapshotRequest};

/// Planning must not delay a backup: what is not planned by then is planned when it begins.
const MAX_PLANNING_TIME: Duration = Duration::from_secs(10);

/// What the work of a backup's volumes is planned from.
pub struct WorkPlan<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// What is read.
    pub plan: &'a BackupPlan,
    /// The filters.
    pub item_filter: &'a ItemFilter,
    /// The policy for file-system backup.
    pub policy: &'a FsBackupPolicy,
    /// What is requested of snapshots.
    pub snapshots: SnapshotRequest,
    /// The namespace of the Backup.
    pub namespace: &'a str,
    /// The stage that plans.
    pub task: &'a Task,
    /// What earlier runs showed.
    pub history: &'a HistoryRecord,
    /// So many transfers run on a node at a time.
    pub slots: usize,
}

/// Plans a task for each volume of a backup. It is only an estimate: an error leaves it out.
pub async fn plan_work(parameters: &WorkPlan<'_>, stages: &Stages) {
    let WorkPlan { cluster, plan, item_filter, policy, snapshots, namespace, task, history, slots } = parameters;
    let planned = volume_plan::plan(cluster, plan, item_filter, policy, *snapshots, namespace, task);
    let volumes = match tokio::time::timeout(MAX_PLANNING_TIME, planned).await {
        Ok(Ok(volumes)) => volumes,
        Ok(Err(Error::Cancelled)) | Err(_) => return,
        Ok(Err(error)) => return debug!("the work of the volumes is not planned: {error}"),
    };
    let stage = stages.stage("volumes");
    stage.task.queue(*slots);
    for volume in &volumes {
        plan_volume(volume, history, *slots, stages);
    }
}

fn plan_volume(volume: &PlannedVolume, history: &HistoryRecord, slots: usize, stages: &Stages) {
    let (stage, extent) = (stages.stage("volumes"), &volume.extent);
    let (bytes, basis) = size(volume, history);
    match (volume.method, &volume.pod, &volume.claim) {
        (Method::FsBackup, Some(pod), _) => {
            let label = format!("{pod}/{}", volume.volume.as_deref().unwrap_or_default());
            stage.plan(&label, transfer_work(bytes, basis), extent.node.as_deref());
        }
        (Method::Snapshot | Method::Moved, _, Some(claim)) if extent.by_class => {
            stage.plan(claim, snapshot_work(), None);
            let (namespace, name) = claim.split_once('/').unwrap_or_default();
            let operation = task_name(CLAIM_ACTION, &ItemId::new("persistentvolumeclaims", Some(namespace), name));
            let moved = volume.method == Method::Moved;
            let work = if moved { movement_work(bytes, basis) } else { snapshot_work() };
            let operations = stages.operations();
            operations.task.queue(slots);
            operations.plan(&operation, work, None);
        }
        (Method::Snapshot, ..) => {
            let volume = extent.persistent_volume.as_deref();
            if let Some(name) = volume {
                stage.plan(name, snapshot_work(), None);
            }
        }
        _ => {}
    }
}

/// The size of a volume, as well as it is known: of its last transfer, else the capacity of its claim.
fn size(volume: &PlannedVolume, history: &HistoryRecord) -> (u64, Basis) {
    let last = volume.extent.claim_uid.as_deref().and_then(|uid| history.size(uid));
    match last {
        Some(bytes) => (bytes, Basis::Estimated),
        None => (volume.extent.capacity.unwrap_or(0), Basis::Assumed),
    }
}
