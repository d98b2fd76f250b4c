//! The wait container of a pod that runs again.

use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStatus, Pod};
use kube::ResourceExt;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{PodVolumeRestore, TransferPhase};
use plimsoll_volumes::transfer::RESTORE_WAIT;

/// The directory with the volumes in the wait container.
const MOUNT_ROOT: &str = "/restores/";

/// The wait container of a pod, and the uid of its restore.
pub(super) fn restore_wait_of(pod: &Pod) -> Option<(&Container, &str)> {
    let mut containers = pod.spec.as_ref()?.init_containers.iter().flatten();
    let container = containers.find(|container| container.name == RESTORE_WAIT)?;
    Some((container, container.args.as_ref()?.last()?))
}

pub(super) fn volumes_of(container: &Container) -> impl Iterator<Item = &str> {
    let mounts = container.volume_mounts.iter().flatten();
    mounts.filter(|mount| mount.mount_path.starts_with(MOUNT_ROOT)).map(|mount| mount.name.as_str())
}

/// A wait container that runs again.
#[derive(Debug)]
pub(super) struct WaitingContainer<'p> {
    container: &'p Container,
    pub restore: &'p str,
    pub restarts: i32,
    /// Whether it is known to have seen all of its data. Otherwise the transfers decide.
    pub had_waited: bool,
}

impl<'p> WaitingContainer<'p> {
    pub fn of(pod: &'p Pod) -> Option<Self> {
        let status = pod.status.as_ref()?;
        let statuses = status.init_container_statuses.iter().flatten();
        let waits = statuses.into_iter().find(|status| status.name == RESTORE_WAIT)?;
        waits.state.as_ref()?.running.as_ref()?;
        // Its earlier end is known, or a container after it was started.
        let started = |status: &ContainerStatus| status.restart_count > 0 || status.last_state.iter().any(has_ended);
        let before = waits.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        let had_waited =
            before.is_some_and(|ended| ended.exit_code == 0) || status.container_statuses.iter().flatten().any(started);
        let ((container, restore), restarts) = (restore_wait_of(pod)?, waits.restart_count);
        (had_waited || restarts > 0).then_some(Self { container, restore, restarts, had_waited })
    }

    pub fn volumes(&self) -> impl Iterator<Item = &str> {
        volumes_of(self.container)
    }

    /// Whether these transfers have completed for every volume.
    pub fn has_all(&self, transfers: &[PodVolumeRestore]) -> bool {
        let has = |volume: &str| {
            transfers.iter().any(|transfer| {
                transfer.labels().get(labels::RESTORE_UID).is_some_and(|uid| uid == self.restore)
                    && transfer.spec.volume.as_deref() == Some(volume)
                    && transfer.phase() == TransferPhase::Completed
            })
        };
        self.volumes().all(has)
    }
}

fn has_ended(state: &ContainerState) -> bool {
    state.terminated.is_some()
}
