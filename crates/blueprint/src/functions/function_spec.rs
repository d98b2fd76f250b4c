//! Specifications of all functions of Kanister: arguments, outputs and progress.

use crate::template;

/// How the progress of a phase is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressKind {
    /// By the bytes that a mover reports.
    Bytes,
    /// In three equal steps: prerequisites, execution, cleanup.
    Steps,
    /// 0 until it is complete.
    OnCompletion,
}

/// Whether a function is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Supported.
    Full,
    /// Not supported, and why.
    Unsupported(&'static str),
}

/// The specification of a function.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionSpec {
    /// The name in a phase's `func`.
    pub name: &'static str,
    /// Required arguments, which must not be null.
    pub required: &'static [&'static str],
    /// Groups of arguments of which exactly one is required.
    pub one_of: &'static [&'static [&'static str]],
    /// Optional arguments.
    pub optional: &'static [&'static str],
    /// Whether it creates pods, and so accepts [`POD_ARGUMENTS`].
    pub creates_pods: bool,
    /// The keys of its own outputs.
    pub outputs: &'static [&'static str],
    /// Whether outputs of `kando output` are accepted.
    pub accepts_kando_outputs: bool,
    /// How its progress is measured.
    pub progress: ProgressKind,
    /// Whether its arguments are rendered before the call; the other functions render them themselves.
    pub rendered: bool,
    /// Whether it is supported.
    pub support: Support,
}

impl FunctionSpec {
    /// Whether the function has this argument.
    pub fn accepts(&self, argument: &str) -> bool {
        self.required.contains(&argument)
            || self.optional.contains(&argument)
            || (self.creates_pods && POD_ARGUMENTS.contains(&argument))
            || self.one_of.iter().any(|group| group.contains(&argument))
    }
}

/// Optional arguments of every function that creates pods.
pub const POD_ARGUMENTS: [&str; 3] = ["podOverride", "podLabels", "podAnnotations"];

/// The specification of a function, supported or not.
pub fn find(name: &str) -> Option<&'static FunctionSpec> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// Whether a string is a version, as in `preferredVersion`. Every function has exactly one version: Kanister's default.
pub fn is_version(text: &str) -> bool {
    template::is_version(text)
}

const DEFAULTS: FunctionSpec = FunctionSpec {
    name: "",
    required: &[],
    one_of: &[],
    optional: &[],
    creates_pods: false,
    outputs: &[],
    accepts_kando_outputs: false,
    progress: ProgressKind::Steps,
    rendered: true,
    support: Support::Full,
};

/// A function that creates pods.
const POD: FunctionSpec = FunctionSpec { creates_pods: true, ..DEFAULTS };
/// A function that creates pods and accepts outputs of `kando output`.
const COMMAND_POD: FunctionSpec = FunctionSpec { accepts_kando_outputs: true, ..POD };
/// A function that does not report progress.
const ON_COMPLETION: FunctionSpec = FunctionSpec { progress: ProgressKind::OnCompletion, ..DEFAULTS };
/// A function that waits for conditions, and renders them itself.
const WAIT: FunctionSpec = FunctionSpec { required: &["timeout", "conditions"], rendered: false, ..ON_COMPLETION };
const NO_RDS: FunctionSpec =
    FunctionSpec { support: Support::Unsupported("Amazon RDS functions are not supported"), ..DEFAULTS };

/// All functions, in Kanister's groups.
pub const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec { name: "KubeTask", required: &["image", "command"], optional: &["namespace"], ..COMMAND_POD },
    FunctionSpec {
        name: "KubeExec",
        required: &["namespace", "pod", "command"],
        optional: &["container"],
        accepts_kando_outputs: true,
        ..DEFAULTS
    },
    FunctionSpec {
        name: "KubeExecAll",
        required: &["namespace", "pods", "containers", "command"],
        accepts_kando_outputs: true,
        ..DEFAULTS
    },
    FunctionSpec {
        name: "MultiContainerRun",
        required: &["backgroundImage", "backgroundCommand", "outputImage", "outputCommand"],
        optional: &[
            "namespace",
            "initImage",
            "initCommand",
            "sharedVolumeMedium",
            "sharedVolumeSizeLimit",
            "sharedVolumeDir",
        ],
        ..COMMAND_POD
    },
    FunctionSpec {
        name: "KubeOps",
        required: &["operation"],
        optional: &["namespace", "spec", "objectReference"],
        outputs: &["apiVersion", "group", "resource", "kind", "name", "namespace"],
        ..DEFAULTS
    },
    FunctionSpec {
        name: "ScaleWorkload",
        required: &["replicas"],
        optional: &["namespace", "name", "kind", "waitForReady"],
        outputs: &["originalReplicaCount"],
        ..ON_COMPLETION
    },
    FunctionSpec {
        name: "PrepareData",
        required: &["namespace", "image", "command"],
        optional: &["volumes", "serviceaccount", "failOnError"],
        ..COMMAND_POD
    },
    FunctionSpec {
        name: "BackupData",
        required: &["namespace", "pod", "container", "includePath", "backupArtifactPrefix"],
        optional: &["encryptionKey", "insecureTLS"],
        outputs: &["backupID", "backupTag", "fileCount", "size", "phySize", "version"],
        progress: ProgressKind::Bytes,
        ..DEFAULTS
    },
    FunctionSpec {
        name: "BackupDataAll",
        required: &["namespace", "container", "includePath", "backupArtifactPrefix"],
        optional: &["pods", "encryptionKey", "insecureTLS"],
        outputs: &["BackupAllInfo", "version"],
        progress: ProgressKind::Bytes,
        ..DEFAULTS
    },
    FunctionSpec {
        name: "BackupDataStats",
        required: &["namespace", "backupArtifactPrefix", "backupID"],
        optional: &["image", "statsMode", "encryptionKey"],
        outputs: &["mode", "fileCount", "size", "version"],
        ..POD
    },
    FunctionSpec {
        name: "RestoreData",
        required: &["namespace", "image", "backupArtifactPrefix"],
        one_of: &[&["backupTag", "backupIdentifier"], &["pod", "volumes"]],
        optional: &["restorePath", "backupPath", "encryptionKey", "insecureTLS"],
        progress: ProgressKind::Bytes,
        ..COMMAND_POD
    },
    FunctionSpec {
        name: "RestoreDataAll",
        required: &["namespace", "image", "backupArtifactPrefix", "backupInfo"],
        optional: &["restorePath", "pods", "encryptionKey", "insecureTLS"],
        progress: ProgressKind::Bytes,
        ..COMMAND_POD
    },
    FunctionSpec {
        name: "CopyVolumeData",
        required: &["namespace", "volume", "dataArtifactPrefix"],
        optional: &["image", "encryptionKey", "mountPath", "insecureTLS"],
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
        progress: ProgressKind::Bytes,
        ..POD
    },
    FunctionSpec {
        name: "DeleteData",
        required: &["namespace", "backupArtifactPrefix"],
        one_of: &[&["backupID", "backupTag"]],
        optional: &["image", "encryptionKey", "reclaimSpace", "insecureTLS"],
        outputs: &["spaceFreed"],
        ..POD
    },
    FunctionSpec {
        name: "DeleteDataAll",
        required: &["namespace", "backupArtifactPrefix", "backupInfo"],
        optional: &["image", "encryptionKey", "reclaimSpace", "insecureTLS"],
        outputs: &["spaceFreed"],
        ..POD
    },
    FunctionSpec {
        name: "CheckRepository",
        required: &["backupArtifactPrefix"],
        optional: &["image", "encryptionKey", "insecureTLS"],
        outputs: &["passwordIncorrect", "repoUnavailable", "version"],
        ..POD
    },
    FunctionSpec { name: "LocationDelete", required: &["artifact"], ..ON_COMPLETION },
    FunctionSpec { name: "Wait", ..WAIT },
    FunctionSpec { name: "WaitV2", ..WAIT },
    FunctionSpec {
        name: "CreateCSISnapshot",
        required: &["pvc", "namespace", "snapshotClass"],
        optional: &["name", "labels"],
        outputs: &["name", "pvc", "namespace", "restoreSize", "snapshotContent"],
        ..ON_COMPLETION
    },
    FunctionSpec {
        name: "CreateCSISnapshotStatic",
        required: &["name", "namespace", "driver", "snapshotHandle", "snapshotClass"],
        outputs: &["name", "namespace", "restoreSize", "snapshotContent"],
        ..ON_COMPLETION
    },
    FunctionSpec {
        name: "RestoreCSISnapshot",
        required: &["name", "pvc", "namespace", "storageClass", "restoreSize"],
        optional: &["accessModes", "volumeMode", "labels"],
        ..ON_COMPLETION
    },
    FunctionSpec { name: "DeleteCSISnapshot", required: &["name", "namespace"], ..ON_COMPLETION },
    FunctionSpec { name: "DeleteCSISnapshotContent", required: &["name"], ..ON_COMPLETION },
    FunctionSpec { name: "CreateRDSSnapshot", ..NO_RDS },
    FunctionSpec { name: "ExportRDSSnapshotToLocation", ..NO_RDS },
    FunctionSpec { name: "RestoreRDSSnapshot", ..NO_RDS },
    FunctionSpec { name: "DeleteRDSSnapshot", ..NO_RDS },
    FunctionSpec {
        name: "BackupDataUsingKopiaServer",
        required: &["namespace", "pod", "container", "includePath"],
        optional: &["snapshotTags", "repositoryServerUserHostname"],
        outputs: &["backupID", "size", "phySize"],
        progress: ProgressKind::Bytes,
        ..DEFAULTS
    },
    FunctionSpec {
        name: "RestoreDataUsingKopiaServer",
        required: &["namespace", "image", "backupIdentifier", "restorePath"],
        one_of: &[&["pod", "volumes"]],
        optional: &["repositoryServerUserHostname"],
        progress: ProgressKind::Bytes,
        ..POD
    },
    FunctionSpec {
        name: "DeleteDataUsingKopiaServer",
        required: &["namespace", "image", "backupID"],
        optional: &["repositoryServerUserHostname"],
        ..POD
    },
];
