//! Every function of Kanister by name: its arguments, its outputs, and how it shows progress.

use crate::template;

/// How a function's phase moves from 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// By the bytes that a mover reports.
    Bytes,
    /// In three equal steps: prerequisites, execution, cleanup.
    Steps,
    /// 0 until it is done.
    AtTheEnd,
}

/// Whether this program can run a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It can.
    Full,
    /// It cannot, and says why.
    Refused(&'static str),
}

/// What one function takes and gives.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// The name in a phase's `func`.
    pub name: &'static str,
    /// Arguments that must be there and must not be null.
    pub required: &'static [&'static str],
    /// Groups of arguments of which exactly one must be there.
    pub one_of: &'static [&'static [&'static str]],
    /// Arguments that may be there.
    pub optional: &'static [&'static str],
    /// The keys of its output that it always makes itself.
    pub outputs: &'static [&'static str],
    /// Whether lines of `kando output` become outputs too.
    pub takes_outputs: bool,
    /// How its progress is shown.
    pub shown: Shown,
    /// Whether its arguments are rendered before it is called; the others render some of them by themselves.
    pub rendered: bool,
    /// Whether this program can run it.
    pub support: Support,
}

impl Function {
    /// Whether an argument may be given at all.
    pub fn accepts(&self, argument: &str) -> bool {
        self.required.contains(&argument)
            || self.optional.contains(&argument)
            || self.one_of.iter().any(|group| group.contains(&argument))
    }
}

/// The function of this name, whether it can be run or is refused by name.
pub fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// Whether a text is a version, as `preferredVersion` has them. Every function has exactly one here: Kanister's default.
pub fn is_version(text: &str) -> bool {
    template::is_version(text)
}

const BLANK: Function = Function {
    name: "",
    required: &[],
    one_of: &[],
    optional: &[],
    outputs: &[],
    takes_outputs: false,
    shown: Shown::Steps,
    rendered: true,
    support: Support::Full,
};

const NO_RDS: Support = Support::Refused("functions of Amazon RDS are not supported");
const NO_KOPIA_SERVER: Support = Support::Refused("functions of Kanister's Kopia repository server are not supported");

/// All functions, in Kanister's groups.
pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "KubeTask",
        required: &["image", "command"],
        optional: &["namespace", "podOverride", "podLabels", "podAnnotations"],
        takes_outputs: true,
        ..BLANK
    },
    Function {
        name: "KubeExec",
        required: &["namespace", "pod", "command"],
        optional: &["container"],
        takes_outputs: true,
        ..BLANK
    },
    Function {
        name: "KubeExecAll",
        required: &["namespace", "pods", "containers", "command"],
        takes_outputs: true,
        ..BLANK
    },
    Function {
        name: "MultiContainerRun",
        required: &["backgroundImage", "backgroundCommand", "outputImage", "outputCommand"],
        optional: &[
            "namespace",
            "initImage",
            "initCommand",
            "sharedVolumeMedium",
            "sharedVolumeSizeLimit",
            "sharedVolumeDir",
            "podOverride",
            "podLabels",
            "podAnnotations",
        ],
        takes_outputs: true,
        ..BLANK
    },
    Function {
        name: "KubeOps",
        required: &["operation"],
        optional: &["namespace", "spec", "objectReference"],
        outputs: &["apiVersion", "group", "resource", "kind", "name", "namespace"],
        ..BLANK
    },
    Function {
        name: "ScaleWorkload",
        required: &["replicas"],
        optional: &["namespace", "name", "kind", "waitForReady"],
        outputs: &["originalReplicaCount"],
        shown: Shown::AtTheEnd,
        ..BLANK
    },
    Function {
        name: "PrepareData",
        required: &["namespace", "image", "command"],
        optional: &["volumes", "serviceaccount", "failOnError", "podOverride", "podLabels", "podAnnotations"],
        takes_outputs: true,
        ..BLANK
    },
    Function {
        name: "BackupData",
        required: &["namespace", "pod", "container", "includePath", "backupArtifactPrefix"],
        optional: &["encryptionKey", "insecureTLS"],
        outputs: &["backupID", "backupTag", "fileCount", "size", "phySize", "version"],
        shown: Shown::Bytes,
        ..BLANK
    },
    Function {
        name: "BackupDataAll",
        required: &["namespace", "container", "includePath", "backupArtifactPrefix"],
        optional: &["pods", "encryptionKey", "insecureTLS"],
        outputs: &["BackupAllInfo", "version"],
        shown: Shown::Bytes,
        ..BLANK
    },
    Function {
        name: "BackupDataStats",
        required: &["namespace", "backupArtifactPrefix", "backupID"],
        optional: &["image", "statsMode", "encryptionKey", "podOverride", "podLabels", "podAnnotations"],
        outputs: &["mode", "fileCount", "size", "version"],
        ..BLANK
    },
    Function {
        name: "RestoreData",
        required: &["namespace", "image", "backupArtifactPrefix"],
        one_of: &[&["backupTag", "backupIdentifier"], &["pod", "volumes"]],
        optional: &[
            "restorePath",
            "backupPath",
            "encryptionKey",
            "insecureTLS",
            "podOverride",
            "podLabels",
            "podAnnotations",
        ],
        takes_outputs: true,
        shown: Shown::Bytes,
        ..BLANK
    },
    Function {
        name: "RestoreDataAll",
        required: &["namespace", "image", "backupArtifactPrefix", "backupInfo"],
        optional: &[
            "restorePath",
            "pods",
            "encryptionKey",
            "insecureTLS",
            "podOverride",
            "podLabels",
            "podAnnotations",
        ],
        takes_outputs: true,
        shown: Shown::Bytes,
        ..BLANK
    },
    Function {
        name: "CopyVolumeData",
        required: &["namespace", "volume", "dataArtifactPrefix"],
        optional: &["image", "encryptionKey", "mountPath", "insecureTLS", "podOverride", "podLabels", "podAnnotations"],
        outputs: &[
            "backupID",
            "backupRoot",
            "backupArtifactLocation",
            "backupTag",
            "fileCount",
            "size",
            "phySize",
            "version",
        ],
        shown: Shown::Bytes,
        ..BLANK
    },
    Function {
        name: "DeleteData",
        required: &["namespace", "backupArtifactPrefix"],
        one_of: &[&["backupID", "backupTag"]],
        optional: &[
            "image",
            "encryptionKey",
            "reclaimSpace",
            "insecureTLS",
            "podOverride",
            "podLabels",
            "podAnnotations",
        ],
        outputs: &["spaceFreed"],
        ..BLANK
    },
    Function {
        name: "DeleteDataAll",
        required: &["namespace", "backupArtifactPrefix", "backupInfo"],
        optional: &[
            "image",
            "encryptionKey",
            "reclaimSpace",
            "insecureTLS",
            "podOverride",
            "podLabels",
            "podAnnotations",
        ],
        outputs: &["spaceFreed"],
        ..BLANK
    },
    Function {
        name: "CheckRepository",
        required: &["backupArtifactPrefix"],
        optional: &["image", "encryptionKey", "insecureTLS", "podOverride", "podLabels", "podAnnotations"],
        outputs: &["passwordIncorrect", "repoUnavailable", "version"],
        ..BLANK
    },
    Function { name: "LocationDelete", required: &["artifact"], shown: Shown::AtTheEnd, ..BLANK },
    Function { name: "Wait", required: &["timeout", "conditions"], shown: Shown::AtTheEnd, rendered: false, ..BLANK },
    Function { name: "WaitV2", required: &["timeout", "conditions"], shown: Shown::AtTheEnd, rendered: false, ..BLANK },
    Function {
        name: "CreateCSISnapshot",
        required: &["pvc", "namespace", "snapshotClass"],
        optional: &["name", "labels"],
        outputs: &["name", "pvc", "namespace", "restoreSize", "snapshotContent"],
        shown: Shown::AtTheEnd,
        ..BLANK
    },
    Function {
        name: "CreateCSISnapshotStatic",
        required: &["name", "namespace", "driver", "snapshotHandle", "snapshotClass"],
        outputs: &["name", "namespace", "restoreSize", "snapshotContent"],
        shown: Shown::AtTheEnd,
        ..BLANK
    },
    Function {
        name: "RestoreCSISnapshot",
        required: &["name", "pvc", "namespace", "storageClass", "restoreSize"],
        optional: &["accessModes", "volumeMode", "labels"],
        shown: Shown::AtTheEnd,
        ..BLANK
    },
    Function { name: "DeleteCSISnapshot", required: &["name", "namespace"], shown: Shown::AtTheEnd, ..BLANK },
    Function { name: "DeleteCSISnapshotContent", required: &["name"], shown: Shown::AtTheEnd, ..BLANK },
    Function { name: "CreateRDSSnapshot", support: NO_RDS, ..BLANK },
    Function { name: "ExportRDSSnapshotToLocation", support: NO_RDS, ..BLANK },
    Function { name: "RestoreRDSSnapshot", support: NO_RDS, ..BLANK },
    Function { name: "DeleteRDSSnapshot", support: NO_RDS, ..BLANK },
    Function { name: "BackupDataUsingKopiaServer", support: NO_KOPIA_SERVER, ..BLANK },
    Function { name: "RestoreDataUsingKopiaServer", support: NO_KOPIA_SERVER, ..BLANK },
    Function { name: "DeleteDataUsingKopiaServer", support: NO_KOPIA_SERVER, ..BLANK },
];
