//! Controllers that a user disables, by Velero's names.

use std::collections::BTreeSet;
use std::str::FromStr;

/// A controller that can be disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DisableableController {
    /// `backup`: Backups stay `New`.
    Backup,
    /// `backup-deletion`: DeleteBackupRequests stay `New`.
    BackupDeletion,
    /// `backup-repo`: BackupRepositories are not checked.
    BackupRepository,
    /// `backup-sync`: backups in locations do not become objects.
    BackupSync,
    /// `download-request`: there are no download links.
    DownloadRequest,
    /// `gc`: expired backups stay.
    GarbageCollection,
    /// `restore`: Restores stay `New`.
    Restore,
    /// `schedule`: Schedules create no backups.
    Schedule,
    /// `server-status-request`: `version` and `plugin get` get no answer.
    ServerStatusRequest,
}

use DisableableController::{
    Backup, BackupDeletion, BackupRepository, BackupSync, DownloadRequest, GarbageCollection, Restore, Schedule,
    ServerStatusRequest,
};

const NAMES: [(&str, DisableableController); 9] = [
    ("backup", Backup),
    ("backup-deletion", BackupDeletion),
    ("backup-repo", BackupRepository),
    ("backup-sync", BackupSync),
    ("download-request", DownloadRequest),
    ("gc", GarbageCollection),
    ("restore", Restore),
    ("schedule", Schedule),
    ("server-status-request", ServerStatusRequest),
];

/// Controllers of Velero that are a part of another one here.
const PARTS: [(&str, &str); 5] = [
    ("backup-queue", "backup"),
    ("backup-operations", "backup"),
    ("backup-finalizer", "backup"),
    ("restore-operations", "restore"),
    ("restore-finalizer", "restore"),
];

/// The controllers that `--restore-only` disables.
pub const RESTORE_ONLY: [DisableableController; 4] = [Backup, BackupDeletion, GarbageCollection, Schedule];

/// The disabled controllers of a server.
pub type DisabledControllers = BTreeSet<DisableableController>;

impl FromStr for DisableableController {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some((_, controller)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Ok(*controller);
        }
        if let Some((_, whole)) = PARTS.iter().find(|(part, _)| *part == name) {
            return Err(format!("{name} is a part of {whole} and cannot be disabled by itself"));
        }
        let names: Vec<&str> = NAMES.iter().map(|(known, _)| *known).collect();
        Err(format!("unknown controller {name:?}, want one of {}", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_means_no_controller_of_its_own_is_an_error() {
        assert_eq!("gc".parse(), Ok(GarbageCollection));
        let error = |name: &str| name.parse::<DisableableController>().unwrap_err();
        assert!(error("backup-finalizer").contains("is a part of backup"));
        assert!(error("podvolume").contains("want one of backup, backup-deletion"));
    }
}
