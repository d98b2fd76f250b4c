//! The kinds that are looked at.

use std::fmt;
use std::str::FromStr;

use kube::api::ApiResource;
use kube::core::GroupVersionKind;

/// A kind of object: what operations are made of, and what explains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Velero's, and ours.
    Backup,
    /// Velero's, and ours.
    Restore,
    /// Kanister's.
    ActionSet,
    /// A volume's files on their way into a repository.
    PodVolumeBackup,
    /// A volume's files on their way out of a repository.
    PodVolumeRestore,
    /// A snapshot's data on its way into a repository.
    DataUpload,
    /// A snapshot's data on its way out of a repository.
    DataDownload,
    /// A volume of which a plugin takes a snapshot.
    VolumePluginBackup,
    /// A volume that a plugin makes from a snapshot.
    VolumePluginRestore,
    /// Backups made again and again.
    Schedule,
    /// Where backups are kept.
    Location,
    /// Where the volumes of one namespace are kept.
    Repository,
    /// A backup on its way out.
    DeleteBackupRequest,
    /// Our own record of what is going on.
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

struct Facts {
    kind: Kind,
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
    /// How it may be called; the first one is how we call it.
    words: &'static [&'static str],
}

const fn velero(kind: Kind, name: &'static str, plural: &'static str, words: &'static [&'static str]) -> Facts {
    Facts { kind, group: "velero.io", version: "v1", name, plural, words }
}

const fn core(kind: Kind, name: &'static str, plural: &'static str, words: &'static [&'static str]) -> Facts {
    Facts { kind, group: "", version: "v1", name, plural, words }
}

const FACTS: [Facts; 20] = [
    velero(Kind::Backup, "Backup", "backups", &["backup"]),
    velero(Kind::Restore, "Restore", "restores", &["restore"]),
    Facts {
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
    Facts {
        version: "v2alpha1",
        ..velero(Kind::DataUpload, "DataUpload", "datauploads", &["dataupload", "data-upload"])
    },
    Facts {
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
    Facts {
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
    Facts { group: "apps", ..core(Kind::Deployment, "Deployment", "deployments", &["deployment"]) },
    Facts { group: "apps", ..core(Kind::DaemonSet, "DaemonSet", "daemonsets", &["daemonset"]) },
];

impl Kind {
    /// The kinds of which operations are made, and which are always looked at.
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

    /// The kinds of which each is about the data of one volume, by whoever's hand.
    pub const VOLUMES: [Self; 6] = [
        Self::PodVolumeBackup,
        Self::PodVolumeRestore,
        Self::DataUpload,
        Self::DataDownload,
        Self::VolumePluginBackup,
        Self::VolumePluginRestore,
    ];

    fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// How it is called in text and on the command line.
    pub fn word(self) -> &'static str {
        self.facts().words[0]
    }

    /// How the API calls many of it.
    pub fn plural(self) -> &'static str {
        self.facts().plural
    }

    /// How Events and owners call it.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The resource behind it.
    pub fn resource(self) -> ApiResource {
        let facts = self.facts();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(facts.group, facts.version, facts.name), facts.plural)
    }

    /// How `kubectl` must be told: with its group, since other products have backups, too.
    pub fn kubectl(self) -> String {
        let facts = self.facts();
        if facts.group.is_empty() { facts.words[0].to_owned() } else { format!("{}.{}", facts.plural, facts.group) }
    }

    /// Whether an agent moves the data of one volume by it.
    pub fn is_transfer(self) -> bool {
        matches!(self, Self::PodVolumeBackup | Self::PodVolumeRestore | Self::DataUpload | Self::DataDownload)
    }

    /// Whether a plugin does the work, and says itself how far it is.
    pub fn is_plugins(self) -> bool {
        matches!(self, Self::VolumePluginBackup | Self::VolumePluginRestore)
    }

    /// Whether `why` and `watch` have something to say about it.
    pub fn is_explained(self) -> bool {
        self.is_transfer()
            || self.is_plugins()
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

/// A word that is no kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind(String);

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Kind::CUSTOM.iter().filter(|kind| kind.is_explained()).map(|kind| kind.word()).collect();
        write!(f, "{:?} is not a kind: write {}, and a name, e.g. backup/nightly", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownKind {}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let lower = text.to_lowercase();
        let called = |facts: &&Facts| facts.plural == lower || facts.words.contains(&lower.as_str());
        let found = FACTS.iter().find(called).map(|facts| facts.kind).filter(|kind| kind.is_explained());
        found.ok_or_else(|| UnknownKind(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_a_kind_are_its_own() {
        for facts in &FACTS {
            assert_eq!(facts.kind.name(), facts.name);
        }
        assert_eq!("PVB".parse(), Ok(Kind::PodVolumeBackup));
        assert_eq!("backups".parse(), Ok(Kind::Backup));
        assert!(Kind::VOLUMES.iter().all(|kind| kind.word().parse() == Ok(*kind)), "each volume can be asked about");
        assert!("pod".parse::<Kind>().is_err(), "evidence is not explained");
    }
}
