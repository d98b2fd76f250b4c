//! What the server and the agents may do in a cluster: one row for each thing that the code does, with the module that does it.
//!
//! `plimsoll install` turns these tables into roles, and the end-to-end tests run under exactly those: a module that starts to do
//! something else fails there until its row is here.

/// One thing that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// API groups; the empty one is the core's.
    pub groups: &'static [&'static str],
    /// Resources, in the plural.
    pub resources: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// What for.
    pub why: &'static str,
}

const fn right(
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Right {
    Right { groups, resources, verbs, why }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const VELERO: &str = "velero.io";
const OURS: &str = "plimsoll.dev";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

/// The server, in the whole cluster. It deletes nothing there but the snapshots it has made.
pub const SERVER: &[Right] = &[
    right(&["*"], &["*"], &["get", "list", "watch"], "a backup reads every kind; a restore looks before it creates"),
    right(
        &["*"],
        &["*"],
        &["create", "update", "patch"],
        "a restore creates every kind; hooks run in pods (pods/exec)",
    ),
    right(
        &[RBAC],
        &["roles", "clusterroles"],
        &["escalate", "bind"],
        "a restore creates roles that allow more than its own",
    ),
    right(
        &[SNAPSHOTS],
        &["volumesnapshots", "volumesnapshotcontents"],
        &["delete"],
        "the objects of snapshots go with the backup or the blueprint that made them (csi, actionsets)",
    ),
];

/// The server, in its own namespace, beside the above.
pub const SERVER_NAMESPACE: &[Right] = &[
    right(&[""], &["configmaps"], &["delete"], "journals go when their operation has ended (journal)"),
    right(&[OURS], &["operations"], &["delete"], "the record of a subject that is gone (operation)"),
    right(
        &[VELERO],
        &["backups"],
        &["delete"],
        "deleted backups, and those that have left the bucket (sync, deletion)",
    ),
    right(&[VELERO], &["restores"], &["delete"], "the restores of a deleted backup (deletion)"),
    right(&[""], &["secrets"], &["delete"], "what an agent needed for one transfer of a phase (actionsets)"),
    right(&[""], &["pods"], &["delete"], "the pods of a phase go when it has ended (actionsets)"),
    right(
        &[""],
        &["persistentvolumeclaims"],
        &["delete"],
        "the claim that holds the volume of a DataUpload or DataDownload while it is moved (exposing)",
    ),
    right(
        &[VELERO],
        &["deletebackuprequests", "downloadrequests", "serverstatusrequests"],
        &["delete"],
        "requests that have been answered (requests)",
    ),
    right(
        &[VELERO],
        &["podvolumebackups", "podvolumerestores"],
        &["delete"],
        "transfers of backups that are gone (sync, deletion)",
    ),
    right(
        &[VELERO],
        &["volumepluginbackups", "volumepluginrestores"],
        &["delete"],
        "records that give way to a plugin's own, or get the name of their snapshot (snapshots)",
    ),
];

/// An agent, in the whole cluster.
pub const AGENT: &[Right] = &[
    right(&[""], &["pods"], &["get", "list", "watch"], "which pods are on its node, and with which volumes"),
    right(&[""], &["persistentvolumeclaims", "persistentvolumes"], &["get", "list"], "which directory a volume is"),
];

/// An agent, in the server's namespace.
pub const AGENT_NAMESPACE: &[Right] = &[
    right(
        &[VELERO],
        &["podvolumebackups", "podvolumerestores", "datauploads", "datadownloads"],
        &["get", "list", "watch", "update", "patch"],
        "the transfers of its node (transfer)",
    ),
    right(&[VELERO], &["backupstoragelocations", "backuprepositories"], &["get", "list"], "where the repository is"),
    right(&[""], &["secrets"], &["get"], "the repositories' password and the location's keys"),
    right(&["coordination.k8s.io"], &["leases"], &["get", "create", "update", "patch"], "says that it lives (lease)"),
    right(&[""], &["events"], &["create", "patch", "get"], "says what happens to a transfer (events)"),
    right(
        &["apps"],
        &["deployments", "daemonsets"],
        &["list"],
        "whether a Velero or its node agents work here: then it looks on (peers)",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_may_delete_outside_of_the_servers_namespace_but_snapshots_and_agents_write_nothing_there() {
        let verbs = |rights: &[Right]| rights.iter().flat_map(|right| right.verbs).copied().collect::<Vec<_>>();
        assert!(!verbs(SERVER).iter().any(|verb| ["deletecollection", "*", "impersonate"].contains(verb)));
        let deletes = |right: &&Right| right.verbs.contains(&"delete");
        let deleted: Vec<_> = SERVER.iter().filter(deletes).flat_map(|right| right.groups).collect();
        assert_eq!(deleted, [&SNAPSHOTS], "nothing but snapshots");
        assert!(verbs(AGENT).iter().all(|verb| ["get", "list", "watch"].contains(verb)));
        assert!(
            [SERVER, SERVER_NAMESPACE, AGENT, AGENT_NAMESPACE]
                .iter()
                .all(|rights| rights.iter().all(|right| !right.why.is_empty()))
        );
    }
}
