//! Options of the server for volumes.

use std::time::Duration;

use clap::Args;
use plimsoll_volumes::MoverChoice;

/// How the server backs up and restores volumes.
#[derive(Debug, Args)]
pub struct Volumes {
    /// Program that transfers volume data in new backups: auto, built-in, restic or kopia
    ///
    /// auto is kopia if this cluster has kopia repositories, so that Velero can still restore them, else built-in. A restore
    /// uses the program of its backup.
    #[arg(long, value_name = "TYPE", default_value = "auto", env = "PLIMSOLL_UPLOADER_TYPE")]
    pub uploader_type: MoverChoice,
    /// Back up the files of all pod volumes by default, except those that opt out
    // The last one counts: an argument of the user comes after that of the installer.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = clap::ArgAction::Set, overrides_with = "default_volumes_to_fs_backup")]
    pub default_volumes_to_fs_backup: bool,
    /// Accept Velero's default repository password for repositories that this cluster has never used
    ///
    /// Without the secret velero-repo-credentials, and only then. With write access to the bucket, a repository
    /// with that password can be planted there.
    #[arg(long)]
    pub adopt_default_repository_password: bool,
    /// Timeout of the transfer of one volume
    #[arg(long, value_name = "DURATION", default_value = "4h", value_parser = super::values::duration)]
    pub fs_backup_timeout: Duration,
    /// Time without a heartbeat after which a node agent counts as failed, and its transfers fail
    #[arg(long, value_name = "DURATION", default_value = "45s", value_parser = super::values::duration)]
    pub agent_heartbeat_timeout: Duration,
    /// Image of the init container that waits in a restored pod for the data of its volumes
    #[arg(long, value_name = "IMAGE", default_value = concat!("plimsoll:", env!("CARGO_PKG_VERSION")), env = "PLIMSOLL_IMAGE")]
    pub restore_helper_image: String,
    /// Path of plimsoll in that image
    #[arg(long, value_name = "PATH", default_value = "/plimsoll", env = "PLIMSOLL_RESTORE_HELPER_PROGRAM")]
    pub restore_helper_program: String,
}
