//! The keys of all files in a backup location.
//!
//! Keys are relative to the prefix of the location; [`with_prefix`] prepends it. Velero rejects a location with an unknown
//! top-level directory, so the files that only Plimsoll writes are in the directory of their backup or restore. Deleting a
//! backup or restore deletes its whole directory.

use crate::Error;

/// Directories allowed at the top level of a location.
pub const TOP_LEVEL_DIRECTORIES: &[&str] = &["backups", "restores", "restic", "metadata", "plugins", "kopia"];

/// The directory of backups.
pub const BACKUPS_DIRECTORY: &str = "backups/";
/// The directory of restores.
pub const RESTORES_DIRECTORY: &str = "restores/";

/// Prepends the prefix of the location; leading and trailing slashes of the prefix are ignored.
pub fn with_prefix(prefix: &str, key: &str) -> String {
    match prefix.trim_matches('/') {
        "" => key.to_owned(),
        prefix => format!("{prefix}/{key}"),
    }
}

/// Checks the top-level directories of a location, as a listing returns them.
pub fn validate_top_level<'a>(directories: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
    let name = |directory: &'a str| directory.trim_end_matches('/');
    let unexpected = |directory: &&str| !TOP_LEVEL_DIRECTORIES.contains(directory) && !directory.is_empty();
    let mut names: Vec<String> = directories.into_iter().map(name).filter(unexpected).map(str::to_owned).collect();
    names.sort();
    if names.is_empty() { Ok(()) } else { Err(Error::UnexpectedDirectories(names)) }
}

/// The name of the backup that a key or directory under `backups/` belongs to.
pub fn backup_name_of_key(key: &str) -> Option<&str> {
    let name = key.strip_prefix(BACKUPS_DIRECTORY)?.split('/').next()?;
    (!name.is_empty()).then_some(name)
}

macro_rules! keys {
    ($($(#[$doc:meta])* $function:ident($name:ident) = $format:literal;)*) => {
        $($(#[$doc])* pub fn $function($name: &str) -> String { format!($format) })*
    };
}

keys! {
    /// The directory of a backup, with a trailing slash.
    backup_directory(b) = "backups/{b}/";
    /// The Backup object. A backup exists if this file does.
    backup_metadata(b) = "backups/{b}/velero-backup.json";
    /// The tarball.
    backup_contents(b) = "backups/{b}/{b}.tar.gz";
    /// The log.
    backup_log(b) = "backups/{b}/{b}-logs.gz";
    /// The PodVolumeBackups.
    backup_pod_volume_backups(b) = "backups/{b}/{b}-podvolumebackups.json.gz";
    /// The native volume snapshots.
    backup_volume_snapshots(b) = "backups/{b}/{b}-volumesnapshots.json.gz";
    /// The asynchronous operations of plugins.
    backup_item_operations(b) = "backups/{b}/{b}-itemoperations.json.gz";
    /// The contents of the tarball by kind.
    backup_resource_list(b) = "backups/{b}/{b}-resource-list.json.gz";
    /// Errors and warnings.
    backup_results(b) = "backups/{b}/{b}-results.gz";
    /// How each volume was backed up.
    backup_volume_info(b) = "backups/{b}/{b}-volumeinfo.json.gz";
    /// Snapshots of the CSI driver, in backups of older Velero versions.
    backup_csi_volume_snapshots(b) = "backups/{b}/{b}-csi-volumesnapshots.json.gz";
    /// Snapshot contents of the CSI driver, in backups of older Velero versions.
    backup_csi_volume_snapshot_contents(b) = "backups/{b}/{b}-csi-volumesnapshotcontents.json.gz";
    /// Snapshot classes of the CSI driver, in backups of older Velero versions.
    backup_csi_volume_snapshot_classes(b) = "backups/{b}/{b}-csi-volumesnapshotclasses.json.gz";
    /// The outcome of each item; written by Plimsoll only.
    backup_outcome(b) = "backups/{b}/{b}-outcome.json.gz";
    /// The VolumePluginBackups; written by Plimsoll only.
    backup_volume_plugin_backups(b) = "backups/{b}/{b}-volumepluginbackups.json.gz";
    /// The proof that a cluster made the backup; written by Plimsoll only.
    backup_proof(b) = "backups/{b}/{b}-proof.json.gz";

    /// The directory of a restore, with a trailing slash.
    restore_directory(r) = "restores/{r}/";
    /// The log.
    restore_log(r) = "restores/{r}/restore-{r}-logs.gz";
    /// Errors and warnings.
    restore_results(r) = "restores/{r}/restore-{r}-results.gz";
    /// The restored objects by kind and the result of each.
    restore_resource_list(r) = "restores/{r}/restore-{r}-resource-list.json.gz";
    /// The asynchronous operations of plugins.
    restore_item_operations(r) = "restores/{r}/restore-{r}-itemoperations.json.gz";
    /// How each volume was restored. The only restore file without the prefix `restore-`.
    restore_volume_info(r) = "restores/{r}/{r}-volumeinfo.json.gz";
    /// The outcome of each item; written by Plimsoll only.
    restore_outcome(r) = "restores/{r}/restore-{r}-outcome.json.gz";
}
