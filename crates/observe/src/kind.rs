//! The kinds of objects that are read.

use std::fmt;
use std::str::FromStr;

use kube::api::ApiResource;
use kube::core::GroupVersionKind;

/// A kind of object: operations, and the evidence that explains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A backup.
    Backup,
    /// A restore.
    Restore,
    /// Kanister's action.
    ActionSet,
    /// An upload of a volume's files.
    PodVolumeBackup,
    /// A download of a volume's files.
    PodVolumeRestore,
    /// An upload of a snapshot's data.
    DataUpload,
    /// A download of a snapshot's data.
    DataDownload,
    /// A snapshot by a plugin.
    VolumePluginBackup,
    /// A volume that a plugin creates from a snapshot.
    VolumePluginRestore,
    /// A schedule of backups.
    Schedule,
    /// A BackupStorageLocation.
    Location,
    /// A BackupRepository.
    Repository,
    /// The deletion of a backup.
    DeleteBackupRequest,
    /// Our own record of an operation.
    Operation,
    /// Evidence.
    Pod,
    /// Evidence.
    Event,
    /// Evidence.
    Node,
    /// Evidence.
    Namespace,
    /// Evidence.
    Deployment,
    /// Evidence.
    DaemonSet,
}

struct KindInfo {
    kind: Kind,
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
    /// Accepted names; the first one is shown.
    words: &'static [&'static str],
}

const fn velero(kind: Kind, name: &'static str, plural: &'static str, words: &'static [&'static str]) -> KindInfo {
    KindInfo { kind, group: "velero.io", version: "v1", name, plural, words }
}

const fn core(kind: Kind, name: &'static str, plural: &'static str, words: &'static [&'static str]) -> KindInfo {
    KindInfo { kind, group: "", version: "v1", name, plural, words }
}

const KINDS: [KindInfo; 20] = [
    velero(Kind::Backup, "Backup", "backups", &["backup"]),
    velero(Kind::Restore, "Restore", "restores", &["restore"]),
    KindInfo {
        kind: Kind::ActionSet,
        group: "cr.kanister.io",
        version: "v1alpha1",
        name: "ActionSet",
        plural: "actionsets",
        words: &["actionset", "action-set"],
    },
    velero(
        Kind::PodVolumeBackup,
        "PodVolumeBackup",
        "podvolumebackups",
        &["podvolumebackup", "pvb", "pod-volume-backup"],
    ),
    velero(
        Kind::PodVolumeRestore,
        "PodVolumeRestore",
        "podvolumerestores",
        &["podvolumerestore", "pvr", "pod-volume-restore"],
    ),
    KindInfo {
        version: "v2alpha1",
        ..velero(Kind::DataUpload, "DataUpload", "datauploads", &["dataupload", "data-upload"])
    },
    KindInfo {
        version: "v2alpha1",
        ..velero(Kind::DataDownload, "DataDownload", "datadownloads", &["datadownload", "data-download"])
    },
    velero(Kind::VolumePluginBackup, "VolumePluginBackup", "volumepluginbackups", &["volumepluginbackup"]),
    velero(Kind::VolumePluginRestore, "VolumePluginRestore", "volumepluginrestores", &["volumepluginrestore"]),
    velero(Kind::Schedule, "Schedule", "schedules", &["schedule"]),
    velero(
        Kind::Location,
        "BackupStorageLocation",
        "backupstoragelocations",
        &["backup-location", "location", "bsl", "backupstoragelocation"],
    ),
    velero(
        Kind::Repository,
        "BackupRepository",
        "backuprepositories",
        &["backup-repository", "backuprepository", "repository"],
    ),
    velero(
        Kind::DeleteBackupRequest,
        "DeleteBackupRequest",
        "deletebackuprequests",
        &["deletebackuprequest", "delete-backup-request"],
    ),
    KindInfo {
        kind: Kind::Operation,
        group: "plimsoll.dev",
        version: "v1alpha1",
        name: "Operation",
        plural: "operations",
        words: &["operation"],
    },
    core(Kind::Pod, "Pod", "pods", &["pod"]),
    core(Kind::Event, "Event", "events", &["event"]),
    core(Kind::Node, "Node", "nodes", &["node"]),
    core(Kind::Namespace, "Namespace", "namespaces", &["namespace"]),
    KindInfo { group: "apps", ..core(Kind::Deployment, "Deployment", "deployments", &["deployment"]) },
    KindInfo { group: "apps", ..core(Kind::DaemonSet, "DaemonSet", "daemonsets", &["daemonset"]) },
];

impl Kind {
    /// The kinds of operations, which are always read.
    pub const CUSTOM: [Self; 14] = [
        Self::Backup,
        Self::Restore,
        Self::ActionSet,
        Self::PodVolumeBackup,
        Self::PodVolumeRestore,
        Self::DataUpload,
        Self::DataDownload,
        Self::VolumePluginBackup,
        Self::VolumePluginRestore,
        Self::Schedule,
        Self::Location,
        Self::Repository,
        Self::DeleteBackupRequest,
        Self::Operation,
    ];

    /// The kinds that describe the data of one volume, by a mover or a plugin.
    pub const VOLUMES: [Self; 6] = [
        Self::PodVolumeBackup,
        Self::PodVolumeRestore,
        Self::DataUpload,
        Self::DataDownload,
        Self::VolumePluginBackup,
        Self::VolumePluginRestore,
    ];

    fn info(self) -> &'static KindInfo {
        &KINDS[self as usize]
    }

    /// The name in text and on the command line.
    pub fn word(self) -> &'static str {
        self.info().words[0]
    }

    /// The plural of the API.
    pub fn plural(self) -> &'static str {
        self.info().plural
    }

    /// The kind of the API.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The API resource.
    pub fn resource(self) -> ApiResource {
        let info = self.info();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(info.group, info.version, info.name), info.plural)
    }

    /// The argument for `kubectl`: with the group, since other products have backups, too.
    pub fn kubectl(self) -> String {
        let info = self.info();
        if info.group.is_empty() { info.words[0].to_owned() } else { format!("{}.{}", info.plural, info.group) }
    }

    /// Whether it is a transfer by a node agent.
    pub fn is_transfer(self) -> bool {
        matches!(self, Self::PodVolumeBackup | Self::PodVolumeRestore | Self::DataUpload | Self::DataDownload)
    }

    /// Whether it is a plugin's work on a volume.
    pub fn is_plugin_volume(self) -> bool {
        matches!(self, Self::VolumePluginBackup | Self::VolumePluginRestore)
    }

    /// Whether `why` and `watch` accept it.
    pub fn is_explained(self) -> bool {
        self.is_transfer()
            || self.is_plugin_volume()
            || matches!(
                self,
                Self::Backup
                    | Self::Restore
                    | Self::ActionSet
                    | Self::Schedule
                    | Self::Location
                    | Self::DeleteBackupRequest
            )
    }
}

/// An unknown kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind(String);

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Kind::CUSTOM.iter().filter(|kind| kind.is_explained()).map(|kind| kind.word()).collect();
        write!(f, "unknown kind {:?}: use KIND/NAME with one of {}, e.g. backup/nightly", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownKind {}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let lower = text.to_lowercase();
        let called = |info: &&KindInfo| info.plural == lower || info.words.contains(&lower.as_str());
        let found = KINDS.iter().find(called).map(|info| info.kind).filter(|kind| kind.is_explained());
        found.ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_kinds_is_in_order() {
        for info in &KINDS {
            assert_eq!(info.kind.name(), info.name);
        }
        assert_eq!("PVB".parse(), Ok(Kind::PodVolumeBackup));
        assert_eq!("backups".parse(), Ok(Kind::Backup));
        assert!(Kind::VOLUMES.iter().all(|kind| kind.word().parse() == Ok(*kind)), "each volume can be asked about");
        assert!("pod".parse::<Kind>().is_err(), "evidence is not explained");
    }
}
