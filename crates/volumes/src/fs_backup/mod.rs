//! File-system backup: which volumes of pods are backed up and restored file by file, by PodVolumeBackups and PodVolumeRestores.
//!
//! ```text
//!  pod ── choose (pure) ──▶ PodVolumeBackup ──▶ follow ──▶ its task in the backup's tree ──▶ errors, volumeinfo
//!  backup's list ── action: restore-wait ──▶ PodVolumeRestore ──▶ follow ──▶ … of the restore's tree
//! ```
//!
//! The leader creates the transfers and waits for them; agents run them. The name of a transfer depends only on its work, so that
//! a new leader finds those of its predecessor.

mod agent_heartbeat;
mod backup;
mod backup_content;
mod cancel;
mod follower;
mod obstacle;
mod policy;
mod restore;
mod restore_wait_action;
mod restore_wait_config;
mod restore_wait_container;
mod restored_pod;
mod services;
mod timeout;
mod transfer_monitor;
mod transfer_writes;
mod volume_info;
mod volume_reader;

pub use backup::{FsBackup, FsBackupParameters};
pub use backup_content::is_of_claim;
pub use cancel::cancel_transfers;
pub use follower::{Follower, TransferLost, TransferResult};
pub use obstacle::last_warning;
use plimsoll_api::velero::v1::{BackupRepository, UploaderType};
use plimsoll_engine::Error;
use plimsoll_engine::RetryPolicy;
use plimsoll_progress::Task;
pub use policy::{FsBackupPolicy, all_by_default, claims_of};
pub use restore::{FsRestore, FsRestoreParameters};
pub use restore_wait_action::RestoreHelper;
pub use services::TransferServices;
pub use timeout::transfer_timeout;
pub use transfer_monitor::TransferMonitor;
pub use volume_info::{ClaimInfo, skipped};

pub(crate) use backup::{UNMOUNTED, windows_refused};
pub(crate) use policy::{Choice, VolumeBinding, claim_name, unsupported_type, volumes};
pub(crate) use volume_reader::VolumeReader;

use kube::ResourceExt;
use sha2::{Digest, Sha256};

use crate::volume_job::name_prefix;

/// The address of a repository that has one. That of a new repository is only in its custom resource.
async fn identifier(services: &TransferServices, repository: BackupRepository, task: &Task) -> Result<String, Error> {
    let known = repository.spec.restic_identifier.clone().filter(|known| !known.is_empty());
    if known.is_some() || repository.spec.repository_type == Some(UploaderType::Kopia) {
        return Ok(known.unwrap_or_default());
    }
    let name = repository.name_any();
    let read = || async {
        let read = services.leader.api::<BackupRepository>().get_opt(&name).await;
        read.map_err(|e| Error::api(format!("read BackupRepository {name}"), e))
    };
    let read = RetryPolicy::default().run(task, read).await?;
    Ok(read.and_then(|repository| repository.spec.restic_identifier).unwrap_or_default())
}

/// The name of a transfer: the same for the same work, whichever leader creates it.
pub fn transfer_name(parent: &str, uid: &str, pod: &str, volume: &str) -> String {
    let digest = Sha256::digest(format!("{uid}\0{pod}\0{volume}"));
    format!("{}-{}", name_prefix(parent), hex::encode(&digest[..5]))
}
