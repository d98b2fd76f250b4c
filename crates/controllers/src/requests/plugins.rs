//! What this server can do, in the words of `velero plugin get`.

use plimsoll_api::velero::v1::PluginInfo;

/// The object stores that are built in.
const OBJECT_STORES: [&str; 4] = ["plimsoll.dev/directory", "velero.io/aws", "velero.io/azure", "velero.io/gcp"];

/// The item actions of backups that are built in.
const BACKUP_ITEM_ACTIONS: [&str; 4] =
    ["velero.io/crd-remap-version", "velero.io/pod", "velero.io/pv", "velero.io/service-account"];

/// The item actions of restores that are built in.
const RESTORE_ITEM_ACTIONS: [&str; 15] = [
    "velero.io/add-pvc-from-pod",
    "velero.io/admission-webhook-configuration",
    "velero.io/apiservice",
    "velero.io/change-image-name",
    "velero.io/change-storage-class",
    "velero.io/cluster-role-bindings",
    "velero.io/crd-preserve-fields",
    "velero.io/init-restore-hook",
    "velero.io/job",
    "velero.io/pod",
    "velero.io/pvc",
    "velero.io/role-bindings",
    "velero.io/secret",
    "velero.io/service",
    "velero.io/service-account",
];

/// Everything that is built in, by kind and name.
pub fn installed() -> Vec<PluginInfo> {
    let kinds: [(&str, &[&str]); 3] = [
        ("BackupItemAction", &BACKUP_ITEM_ACTIONS),
        ("ObjectStore", &OBJECT_STORES),
        ("RestoreItemAction", &RESTORE_ITEM_ACTIONS),
    ];
    let plugin = |kind: &str, name: &str| PluginInfo {
        name: Some(name.to_owned()),
        kind: Some(kind.to_owned()),
        ..PluginInfo::default()
    };
    kinds.iter().flat_map(|(kind, names)| names.iter().map(|name| plugin(kind, name))).collect()
}
