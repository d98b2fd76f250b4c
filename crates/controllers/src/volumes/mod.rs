//! Volume data as a part of backups and restores: which volumes, who moves them, and what became of them.
//!
//! ```text
//!  pod ── choose (pure) ──▶ PodVolumeBackup ──▶ follow ──▶ its task in the backup's tree ──▶ errors, volumeinfo
//!  backup's list ── action: restore-wait ──▶ PodVolumeRestore ──▶ follow ──▶ … of the restore's tree
//! ```
//!
//! The leader makes the transfers and waits for them; agents carry them out. A transfer is named after what it is of, so that a
//! leader that takes over finds those that its predecessor made.

mod action;
mod agents;
mod awaiting;
mod backup;
mod behind;
mod cancel;
mod choose;
mod container;
mod follow;
mod info;
mod limit;
mod mover;
mod obstacle;
mod plan;
mod restore;
mod watchful;

pub use action::Helper;
pub(crate) use backup::{PodVolumes, Wanted};
pub(crate) use cancel::abandon;
pub use choose::Wishes;
pub(crate) use choose::{all_by_default, claims_of};
pub(crate) use follow::{Follower, Lost};
pub(crate) use info::{Claimed, skipped};
pub(crate) use limit::limit;
pub use mover::MoverChoice;
pub(crate) use obstacle::last_warning;
pub use plan::{Method, PlannedVolume, plan};
pub(crate) use restore::{PodData, Source, is_of_claim};
pub(crate) use watchful::Watchful;

use kube::ResourceExt;
use plimsoll_api::velero::v1::{BackupRepository, UploaderType};
use plimsoll_engine::Patience;
use plimsoll_progress::Task;
use sha2::{Digest, Sha256};

use crate::Error;
use crate::context::Context;

/// The address of a repository that has one. What was made just now has it only in its custom resource.
async fn identifier(context: &Context, repository: BackupRepository, task: &Task) -> Result<String, Error> {
    let known = repository.spec.restic_identifier.clone().filter(|known| !known.is_empty());
    if known.is_some() || repository.spec.repository_type == Some(UploaderType::Kopia) {
        return Ok(known.unwrap_or_default());
    }
    let name = repository.name_any();
    let read = || async {
        let read = context.leader.api::<BackupRepository>().get_opt(&name).await;
        read.map_err(|e| Error::api(format!("read BackupRepository {name}"), e))
    };
    let read = Patience::default().run(task, read).await?;
    Ok(read.and_then(|repository| repository.spec.restic_identifier).unwrap_or_default())
}

/// The name of a transfer: the same for the same work, whoever makes it.
pub(crate) fn transfer_name(parent: &str, uid: &str, pod: &str, volume: &str) -> String {
    let digest = Sha256::digest(format!("{uid}\0{pod}\0{volume}"));
    // Names may have 253 characters; a parent's may have as many.
    format!("{}-{}", parent.get(..parent.floor_char_boundary(240)).unwrap_or(parent), hex::encode(&digest[..5]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_work_has_the_same_name_and_other_work_another_one() {
        let name = |pod: &str, volume: &str| transfer_name("nightly", "uid", pod, volume);
        assert_eq!(name("a", "data"), name("a", "data"));
        assert_ne!(name("a", "data"), name("b", "data"));
        assert_ne!(name("a", "bdata"), name("ab", "data"));
        assert!(transfer_name(&"x".repeat(253), "uid", "a", "b").len() <= 253);
    }
}
