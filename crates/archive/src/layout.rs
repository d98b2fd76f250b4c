//! Where everything lies in a backup location.
//!
//! Keys are relative to the location's prefix; [`with_prefix`] puts it in front. Whoever shares the bucket refuses a
//! location with an unknown directory at the top, so what is ours alone lies beside the files of the backup or restore
//! it belongs to: deleting one lists its whole directory.

use crate::Error;

/// Directories that may lie at the top of a location.
pub const TOP_LEVEL: &[&str] = &["backups", "restores", "restic", "metadata", "plugins", "kopia"];

/// Where the backups are.
pub const BACKUPS: &str = "backups/";
/// Where the restores are.
pub const RESTORES: &str = "restores/";

/// A key below the location's prefix; slashes at either end of the prefix do not matter.
pub fn with_prefix(prefix: &str, key: &str) -> String {
    match prefix.trim_matches('/') {
        "" => key.to_owned(),
        prefix => format!("{prefix}/{key}"),
    }
}

/// Whether these names, as a listing of the top of a location gives them, all belong there.
pub fn check_top_level<'a>(directories: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
    let name = |directory: &'a str| directory.trim_end_matches('/');
    let unexpected = |directory: &&str| !TOP_LEVEL.contains(directory) && !directory.is_empty();
    let mut found: Vec<String> = directories.into_iter().map(name).filter(unexpected).map(str::to_owned).collect();
    found.sort();
    if found.is_empty() { Ok(()) } else { Err(Error::UnexpectedDirectories(found)) }
}

/// The backup a key or directory below `backups/` belongs to.
pub fn backup_of(key: &str) -> Option<&str> {
    let name = key.strip_prefix(BACKUPS)?.split('/').next()?;
    (!name.is_empty()).then_some(name)
}

macro_rules! keys {
    ($($(#[$doc:meta])* $function:ident($name:ident) = $format:literal;)*) => {
        $($(#[$doc])* pub fn $function($name: &str) -> String { format!($format) })*
    };
}

keys! {
    /// The directory of a backup, with its slash.
    backup_directory(b) = "backups/{b}/";
    /// The Backup itself; a backup exists when this does.
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
    /// What is in the tarball, by kind.
    backup_resource_list(b) = "backups/{b}/{b}-resource-list.json.gz";
    /// Errors and warnings.
    backup_results(b) = "backups/{b}/{b}-results.gz";
    /// How each volume was backed up.
    backup_volume_info(b) = "backups/{b}/{b}-volumeinfo.json.gz";
    /// Snapshots of the CSI driver, in backups of old.
    backup_csi_volume_snapshots(b) = "backups/{b}/{b}-csi-volumesnapshots.json.gz";
    /// Snapshot contents of the CSI driver, in backups of old.
    backup_csi_volume_snapshot_contents(b) = "backups/{b}/{b}-csi-volumesnapshotcontents.json.gz";
    /// Snapshot classes of the CSI driver, in backups of old.
    backup_csi_volume_snapshot_classes(b) = "backups/{b}/{b}-csi-volumesnapshotclasses.json.gz";
    /// What became of each item: ours alone.
    backup_outcome(b) = "backups/{b}/{b}-outcome.json.gz";
    /// The snapshot plugins' own records: ours alone.
    backup_volume_plugin_backups(b) = "backups/{b}/{b}-volumepluginbackups.json.gz";

    /// The directory of a restore, with its slash.
    restore_directory(r) = "restores/{r}/";
    /// The log.
    restore_log(r) = "restores/{r}/restore-{r}-logs.gz";
    /// Errors and warnings.
    restore_results(r) = "restores/{r}/restore-{r}-results.gz";
    /// What was restored, by kind, and how that went.
    restore_resource_list(r) = "restores/{r}/restore-{r}-resource-list.json.gz";
    /// The asynchronous operations of plugins.
    restore_item_operations(r) = "restores/{r}/restore-{r}-itemoperations.json.gz";
    /// How each volume was restored. The one name here without `restore-` in front.
    restore_volume_info(r) = "restores/{r}/{r}-volumeinfo.json.gz";
    /// What became of each item: ours alone.
    restore_outcome(r) = "restores/{r}/restore-{r}-outcome.json.gz";
}
