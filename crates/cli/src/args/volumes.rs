//! What can be typed about volumes for the server.

use std::time::Duration;

use clap::Args;
use plimsoll_volumes::MoverChoice;

/// How the server has volumes backed up and restored.
#[derive(Debug, Args)]
pub struct Volumes {
    /// Who moves the data of volumes in new backups: auto, built-in, restic or kopia
    ///
    /// auto is kopia where the volumes of this cluster are in kopia repositories already, so that there is a way back to
    /// Velero, and built-in elsewhere. Restores follow the backup.
    #[arg(long, value_name = "MOVER", default_value = "auto", env = "PLIMSOLL_VOLUME_MOVER")]
    pub volume_mover: MoverChoice,
    /// Back up the files of all volumes in backups that do not say, unless their pods opt out
    // The last one counts, so that an argument of the user's comes after the installer's.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = clap::ArgAction::Set, overrides_with = "default_volumes_to_fs_backup")]
    pub default_volumes_to_fs_backup: bool,
    /// How long the transfer of one volume may take
    #[arg(long, value_name = "DURATION", default_value = "4h", value_parser = super::duration)]
    pub fs_backup_timeout: Duration,
    /// A node's agent that was not heard of for this long is taken for dead, and its transfers fail
    #[arg(long, value_name = "DURATION", default_value = "45s", value_parser = super::duration)]
    pub agent_silence: Duration,
    /// Image of the container that waits, in a restored pod, for the data of its volumes
    #[arg(long, value_name = "IMAGE", default_value = concat!("plimsoll:", env!("CARGO_PKG_VERSION")), env = "PLIMSOLL_IMAGE")]
    pub restore_helper_image: String,
    /// The plimsoll program in that image
    #[arg(long, value_name = "PATH", default_value = "/plimsoll", env = "PLIMSOLL_RESTORE_HELPER_PROGRAM")]
    pub restore_helper_program: String,
}
