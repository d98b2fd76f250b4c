//! Which mover a backup's volumes are moved by.

use kube::api::ListParams;
use plimsoll_api::velero::v1::{BackupRepository, UploaderType};
use plimsoll_engine::Error;
use plimsoll_engine::RetryPolicy;
use plimsoll_mover::MoverKind;
use plimsoll_operations::LeaderClient;
use plimsoll_progress::Task;

use crate::repositories::uploader_kind;

/// Which mover new backups of volumes use. One for each backup: Velero refuses two types in one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MoverChoice {
    /// kopia where the volumes of this cluster are in kopia repositories already, so that there is a way back to Velero;
    /// otherwise the built-in one.
    #[default]
    Auto,
    /// This one.
    Always(MoverKind),
}

impl MoverChoice {
    /// The mover for a new backup, whose `task` shows an API server that does not answer.
    pub async fn resolve(self, leader: &LeaderClient, task: &Task) -> Result<MoverKind, Error> {
        if let Self::Always(kind) = self {
            return Ok(kind);
        }
        let list = || async {
            let found = leader.api::<BackupRepository>().list(&ListParams::default()).await;
            found.map_err(|e| Error::api("list BackupRepositories", e))
        };
        Ok(self.for_repositories(&RetryPolicy::default().run(task, list).await?.items))
    }

    /// The same, where these repositories are.
    fn for_repositories(self, repositories: &[BackupRepository]) -> MoverKind {
        let is_kopias = |found: &BackupRepository| found.spec.repository_type == Some(UploaderType::Kopia);
        match self {
            Self::Always(kind) => kind,
            Self::Auto if repositories.iter().any(is_kopias) => MoverKind::Kopia,
            Self::Auto => MoverKind::BuiltIn,
        }
    }

    /// The mover that brings back what was stored in this format: the format decides, whatever new backups are made with. Of the
    /// two that read restic's it is the program only where that was chosen.
    pub fn for_restore(self, stored: Option<&UploaderType>) -> MoverKind {
        match (self, uploader_kind(stored)) {
            (Self::Always(MoverKind::Restic), MoverKind::BuiltIn) => MoverKind::Restic,
            (_, kind) => kind,
        }
    }
}

impl std::str::FromStr for MoverChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "built-in" => Ok(Self::Always(MoverKind::BuiltIn)),
            "restic" => Ok(Self::Always(MoverKind::Restic)),
            "kopia" => Ok(Self::Always(MoverKind::Kopia)),
            other => Err(format!("unknown mover {other:?}: expected auto, built-in, restic or kopia")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(kind: UploaderType) -> BackupRepository {
        let mut repository = BackupRepository::default();
        repository.spec.repository_type = Some(kind);
        repository
    }

    #[test]
    fn kopia_is_the_default_only_where_there_are_kopia_repositories() {
        let (restic, kopia) = (repository(UploaderType::Restic), repository(UploaderType::Kopia));
        let table: [(&[BackupRepository], MoverKind); 3] = [
            (&[], MoverKind::BuiltIn),
            (std::slice::from_ref(&restic), MoverKind::BuiltIn),
            (&[restic.clone(), kopia], MoverKind::Kopia),
        ];
        for (beside, expected) in table {
            assert_eq!(MoverChoice::Auto.for_repositories(beside), expected, "{beside:?}");
            assert_eq!(
                MoverChoice::Always(MoverKind::Restic).for_repositories(beside),
                MoverKind::Restic,
                "what was chosen stays"
            );
        }
    }

    #[test]
    fn a_restore_follows_the_format_of_its_backup_whatever_new_backups_use() {
        use MoverChoice::{Always, Auto};
        let (restic, kopia) = (UploaderType::Restic, UploaderType::Kopia);
        for choice in [Auto, Always(MoverKind::BuiltIn), Always(MoverKind::Restic), Always(MoverKind::Kopia)] {
            assert_eq!(choice.for_restore(Some(&kopia)), MoverKind::Kopia, "{choice:?}");
            let reads_restic = if choice == Always(MoverKind::Restic) { MoverKind::Restic } else { MoverKind::BuiltIn };
            assert_eq!(choice.for_restore(Some(&restic)), reads_restic, "{choice:?}");
            assert_eq!(choice.for_restore(None), reads_restic, "from before there was a choice: {choice:?}");
        }
    }
}
