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
            || self.one_of.iter().any(|group| group.contains(&argument))
    }
}

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
    outputs: &[],
    accepts_kando_outputs: false,
    progress: ProgressKind::Steps,
    rendered: true,
    support: Support::Full,
};

const NO_RDS: Support = Support::Unsupported("Amazon RDS functions are not supported");
const NO_KOPIA_SERVER: Support = Support::Unsupported("Kopia repository server functions are not supported");

/// All functions, in Kanister's groups.
pub const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec {
        name: "KubeTask",
        required: &["image", "command"],
        optional: &["namespace", "podOverride", "podLabels", "podAnnotations"],
        accepts_kando_outputs: true,
        ..DEFAULTS
    },
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
            "podOverride",
            "podLabels",
            "podAnnotations",
        ],
        accepts_kando_outputs: true,
        ..DEFAULTS
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
        progress: ProgressKind::OnCompletion,
        ..DEFAULTS
    },
    FunctionSpec {
        name: "PrepareData",
        required: &["namespace", "image", "command"],
        optional: &["volumes", "serviceaccount", "failOnError", "podOverride", "podLabels", "podAnnotations"],
        accepts_kando_outputs: true,
        ..DEFAULTS
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
        optional: &["image", "statsMode", "encryptionKey", "podOverride", "podLabels", "podAnnotations"],
        outputs: &["mode", "fileCount", "size", "version"],
        ..DEFAULTS
    },
    FunctionSpec {
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
        accepts_kando_outputs: true,
        progress: ProgressKind::Bytes,
        ..DEFAULTS
    },
    FunctionSpec {
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
        accepts_kando_outputs: true,
        progress: ProgressKind::Bytes,
        ..DEFAULTS
    },
    FunctionSpec {
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
        progress: ProgressKind::Bytes,
        ..DEFAULTS
    },
    FunctionSpec {
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
        ..DEFAULTS
    },
    FunctionSpec {
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
        ..DEFAULTS
    },
    FunctionSpec {
        name: "CheckRepository",
        required: &["backupArtifactPrefix"],
        optional: &["image", "encryptionKey", "insecureTLS", "podOverride", "podLabels", "podAnnotations"],
        outputs: &["passwordIncorrect", "repoUnavailable", "version"],
        ..DEFAULTS
    },
    FunctionSpec { name: "LocationDelete", required: &["artifact"], progress: ProgressKind::OnCompletion, ..DEFAULTS },
    FunctionSpec {
        name: "Wait",
        required: &["timeout", "conditions"],
        progress: ProgressKind::OnCompletion,
        rendered: false,
        ..DEFAULTS
    },
    FunctionSpec {
        name: "WaitV2",
        required: &["timeout", "conditions"],
        progress: ProgressKind::OnCompletion,
        rendered: false,
        ..DEFAULTS
    },
    FunctionSpec {
        name: "CreateCSISnapshot",
        required: &["pvc", "namespace", "snapshotClass"],
        optional: &["name", "labels"],
        outputs: &["name", "pvc", "namespace", "restoreSize", "snapshotContent"],
        progress: ProgressKind::OnCompletion,
        ..DEFAULTS
    },
    FunctionSpec {
        name: "CreateCSISnapshotStatic",
        required: &["name", "namespace", "driver", "snapshotHandle", "snapshotClass"],
        outputs: &["name", "namespace", "restoreSize", "snapshotContent"],
        progress: ProgressKind::OnCompletion,
        ..DEFAULTS
    },
    FunctionSpec {
        name: "RestoreCSISnapshot",
        required: &["name", "pvc", "namespace", "storageClass", "restoreSize"],
        optional: &["accessModes", "volumeMode", "labels"],
        progress: ProgressKind::OnCompletion,
        ..DEFAULTS
    },
    FunctionSpec {
        name: "DeleteCSISnapshot",
        required: &["name", "namespace"],
        progress: ProgressKind::OnCompletion,
        ..DEFAULTS
    },
    FunctionSpec {
        name: "DeleteCSISnapshotContent",
        required: &["name"],
        progress: ProgressKind::OnCompletion,
        ..DEFAULTS
    },
    FunctionSpec { name: "CreateRDSSnapshot", support: NO_RDS, ..DEFAULTS },
    FunctionSpec { name: "ExportRDSSnapshotToLocation", support: NO_RDS, ..DEFAULTS },
    FunctionSpec { name: "RestoreRDSSnapshot", support: NO_RDS, ..DEFAULTS },
    FunctionSpec { name: "DeleteRDSSnapshot", support: NO_RDS, ..DEFAULTS },
    FunctionSpec { name: "BackupDataUsingKopiaServer", support: NO_KOPIA_SERVER, ..DEFAULTS },
    FunctionSpec { name: "RestoreDataUsingKopiaServer", support: NO_KOPIA_SERVER, ..DEFAULTS },
    FunctionSpec { name: "DeleteDataUsingKopiaServer", support: NO_KOPIA_SERVER, ..DEFAULTS },
];
