//! What this server can do, in the words of `velero plugin get`.

use plimsoll_api::velero::v1::PluginInfo;
use plimsoll_plugin::PluginRegistry;

/// The object stores that are built in.
const OBJECT_STORES: [&str; 4] = ["plimsoll.dev/directory", "velero.io/aws", "velero.io/azure", "velero.io/gcp"];

/// The item actions of backups that are built in.
const BACKUP_ITEM_ACTIONS: [&str; 4] =
    ["velero.io/crd-remap-version", "velero.io/pod", "velero.io/pv", "velero.io/service-account"];

/// The interfaces with background operations.
const BACKUP_ITEM_ACTIONS_V2: [&str; 1] = ["velero.io/csi-pvc-backupper"];

/// The item actions of deletions that are built in.
const DELETE_ITEM_ACTIONS: [&str; 2] = ["velero.io/csi-volumesnapshotcontent-delete", "velero.io/dataupload-delete"];

/// The item actions of restores that are built in.
const RESTORE_ITEM_ACTIONS: [&str; 16] = [
    "velero.io/add-pvc-from-pod",
    "velero.io/admission-webhook-configuration",
    "velero.io/apiservice",
    "velero.io/change-image-name",
    "velero.io/change-storage-class",
    "velero.io/cluster-role-bindings",
    "velero.io/crd-preserve-fields",
    "velero.io/dataupload",
    "velero.io/init-restore-hook",
    "velero.io/job",
    "velero.io/pod",
    "velero.io/pvc",
    "velero.io/role-bindings",
    "velero.io/secret",
    "velero.io/service",
    "velero.io/service-account",
];

/// The interfaces with background operations.
const RESTORE_ITEM_ACTIONS_V2: [&str; 3] = [
    "velero.io/csi-pvc-restorer",
    "velero.io/csi-volumesnapshot-restorer",
    "velero.io/csi-volumesnapshotcontent-restorer",
];

/// Everything that is built in and everything that plugins offer, by kind and name.
pub fn installed(registry: &PluginRegistry) -> Vec<PluginInfo> {
    let kinds: [(&str, &[&str]); 6] = [
        ("BackupItemAction", &BACKUP_ITEM_ACTIONS),
        ("BackupItemActionV2", &BACKUP_ITEM_ACTIONS_V2),
        ("DeleteItemAction", &DELETE_ITEM_ACTIONS),
        ("ObjectStore", &OBJECT_STORES),
        ("RestoreItemAction", &RESTORE_ITEM_ACTIONS),
        ("RestoreItemActionV2", &RESTORE_ITEM_ACTIONS_V2),
    ];
    let plugin = |kind: &str, name: &str| PluginInfo {
        name: Some(name.to_owned()),
        kind: Some(kind.to_owned()),
        ..PluginInfo::default()
    };
    let built_in = kinds.iter().flat_map(|(kind, names)| names.iter().map(|name| plugin(kind, name)));
    let offered = registry.plugins().iter().map(|registered| plugin(registered.kind.as_str(), &registered.name));
    let mut all: Vec<_> = built_in.chain(offered).collect();
    all.sort_by(|one, other| (&one.kind, &one.name).cmp(&(&other.kind, &other.name)));
    all.dedup();
    all
}
