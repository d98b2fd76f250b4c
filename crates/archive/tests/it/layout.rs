use plimsoll_archive::layout;

#[test]
fn every_key_equals_veleros() {
    for (key, expected) in [
        (layout::backup_directory("b"), "backups/b/"),
        (layout::backup_metadata("b"), "backups/b/velero-backup.json"),
        (layout::backup_contents("b"), "backups/b/b.tar.gz"),
        (layout::backup_log("b"), "backups/b/b-logs.gz"),
        (layout::backup_pod_volume_backups("b"), "backups/b/b-podvolumebackups.json.gz"),
        (layout::backup_volume_snapshots("b"), "backups/b/b-volumesnapshots.json.gz"),
        (layout::backup_item_operations("b"), "backups/b/b-itemoperations.json.gz"),
        (layout::backup_resource_list("b"), "backups/b/b-resource-list.json.gz"),
        (layout::backup_results("b"), "backups/b/b-results.gz"),
        (layout::backup_volume_info("b"), "backups/b/b-volumeinfo.json.gz"),
        (layout::backup_csi_volume_snapshots("b"), "backups/b/b-csi-volumesnapshots.json.gz"),
        (layout::backup_csi_volume_snapshot_contents("b"), "backups/b/b-csi-volumesnapshotcontents.json.gz"),
        (layout::backup_csi_volume_snapshot_classes("b"), "backups/b/b-csi-volumesnapshotclasses.json.gz"),
        (layout::restore_directory("r"), "restores/r/"),
        (layout::restore_log("r"), "restores/r/restore-r-logs.gz"),
        (layout::restore_results("r"), "restores/r/restore-r-results.gz"),
        (layout::restore_resource_list("r"), "restores/r/restore-r-resource-list.json.gz"),
        (layout::restore_item_operations("r"), "restores/r/restore-r-itemoperations.json.gz"),
        (layout::restore_volume_info("r"), "restores/r/r-volumeinfo.json.gz"),
    ] {
        assert_eq!(key, expected);
    }
}

#[test]
fn a_prefix_is_prepended_with_one_slash() {
    for prefix in ["velero", "/velero", "velero/", "/velero/"] {
        assert_eq!(layout::with_prefix(prefix, "backups/b/"), "velero/backups/b/");
    }
    assert_eq!(layout::with_prefix("", "backups/b/"), "backups/b/");
    assert_eq!(layout::with_prefix("/", "backups/b/"), "backups/b/");
}

#[test]
fn unexpected_top_level_directories_are_an_error() {
    assert!(layout::validate_top_level(["backups/", "restores", "kopia/", "restic", "plugins", "metadata"]).is_ok());
    assert!(layout::validate_top_level([]).is_ok());
    let error = layout::validate_top_level(["backups/", "photos/", "old/"]).unwrap_err();
    assert_eq!(error.to_string(), "unexpected top-level directories in backup location: old, photos");
}

#[test]
fn the_backup_of_a_key_is_its_directory() {
    assert_eq!(layout::backup_name_of_key("backups/b/b.tar.gz"), Some("b"));
    assert_eq!(layout::backup_name_of_key("backups/b/"), Some("b"));
    assert_eq!(layout::backup_name_of_key("backups/"), None);
    assert_eq!(layout::backup_name_of_key("restores/b/x"), None);
}
