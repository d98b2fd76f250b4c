//! What the server and the agents may do in a cluster: one row for each thing that the code does, with the module that does it.
//!
//! `plimsoll install` turns these tables into roles, and the end-to-end tests run under exactly those: a module that starts to do
//! something else fails there until its row is here.

/// A policy rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// API groups; the empty one is the core's.
    pub groups: &'static [&'static str],
    /// Resources, in the plural.
    pub resources: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Purpose.
    pub why: &'static str,
}

const fn rule(
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Rule {
    Rule { groups, resources, verbs, why }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const VELERO: &str = "velero.io";
const OURS: &str = "plimsoll.dev";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

/// The server, in the whole cluster. It deletes nothing there but the snapshots it has made.
pub const SERVER: &[Rule] = &[
    rule(&["*"], &["*"], &["get", "list", "watch"], "a backup reads every kind; a restore looks before it creates"),
    rule(&["*"], &["*"], &["create", "update", "patch"], "a restore creates every kind; hooks run in pods (pods/exec)"),
    rule(
        &[RBAC],
        &["roles", "clusterroles"],
        &["escalate", "bind"],
        "a restore creates roles that allow more than its own",
    ),
    rule(
        &[SNAPSHOTS],
        &["volumesnapshots", "volumesnapshotcontents"],
        &["delete"],
        "the objects of snapshots go with the backup or the blueprint that made them (volumes::csi, action_set)",
    ),
];

/// The server, in its own namespace, beside the above.
pub const SERVER_NAMESPACE: &[Rule] = &[
    rule(&[""], &["configmaps"], &["delete"], "journals go when their operation has ended (operations::journal)"),
    rule(&[OURS], &["operations"], &["delete"], "the record of a subject that is gone (operations::operation_record)"),
    rule(
        &[VELERO],
        &["backups"],
        &["delete"],
        "deleted backups, and those that have left the bucket (backup_storage_location, delete_backup_request)",
    ),
    rule(&[VELERO], &["restores"], &["delete"], "the restores of a deleted backup (delete_backup_request)"),
    rule(
        &[""],
        &["secrets"],
        &["delete"],
        "what an agent needed for one transfer of a phase (action_set), or a driver for one volume (volumes::exposer)",
    ),
    rule(&[""], &["pods"], &["delete"], "the pods of a phase go when it has ended (action_set)"),
    rule(
        &[""],
        &["persistentvolumeclaims"],
        &["delete"],
        "the claim that holds the volume of a DataUpload or DataDownload while it is moved (volumes::exposer)",
    ),
    rule(
        &[VELERO],
        &["deletebackuprequests", "downloadrequests", "serverstatusrequests"],
        &["delete"],
        "requests that have been answered (delete_backup_request, download_request, server_status_request)",
    ),
    rule(
        &[VELERO],
        &["podvolumebackups", "podvolumerestores"],
        &["delete"],
        "transfers of backups that are gone (backup_storage_location, delete_backup_request)",
    ),
    rule(
        &[VELERO],
        &["volumepluginbackups", "volumepluginrestores"],
        &["delete"],
        "records that give way to a plugin's own, or get the name of their snapshot (volumes::snapshotter)",
    ),
];

/// An agent, in the whole cluster.
pub const AGENT: &[Rule] = &[
    rule(&[""], &["pods"], &["get", "list", "watch"], "which pods are on its node, and with which volumes"),
    rule(&[""], &["persistentvolumeclaims", "persistentvolumes"], &["get", "list"], "which directory a volume is"),
    rule(
        &[""],
        &["nodes"],
        &["get"],
        "how many transfers its node runs, by the labels of the node (--node-agent-configmap)",
    ),
];

/// An agent, in the server's namespace.
pub const AGENT_NAMESPACE: &[Rule] = &[
    rule(
        &[VELERO],
        &["podvolumebackups", "podvolumerestores", "datauploads", "datadownloads"],
        &["get", "list", "watch", "update", "patch"],
        "the transfers of its node (agent)",
    ),
    rule(&[VELERO], &["backupstoragelocations", "backuprepositories"], &["get", "list"], "where the repository is"),
    rule(&[""], &["configmaps"], &["get"], "how many transfers its node runs (--node-agent-configmap)"),
    rule(&[""], &["secrets"], &["get"], "the repositories' password and the location's keys"),
    rule(
        &["coordination.k8s.io"],
        &["leases"],
        &["get", "create", "update", "patch"],
        "renews the Lease of the agent (agent::lease)",
    ),
    rule(
        &[""],
        &["events"],
        &["create", "patch", "get"],
        "records events about transfers (operations::event_recorder)",
    ),
    rule(
        &["apps"],
        &["deployments", "daemonsets"],
        &["list"],
        "whether a Velero or its node agents work here: then it only observes (operations::peers)",
    ),
];
