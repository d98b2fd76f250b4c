//! The order in which resources are backed up and restored.

use std::collections::{BTreeMap, HashMap};

use crate::Error;
use crate::resources::ResourceMapper;

/// Resources that are never restored, regardless of the spec.
pub const NON_RESTORABLE_RESOURCES: &[&str] = &[
    "nodes",
    "events",
    "events.events.k8s.io",
    "backups.velero.io",
    "restores.velero.io",
    "resticrepositories.velero.io",
    "csinodes.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "backuprepositories.velero.io",
    "volumepluginbackups.velero.io",
    "volumepluginrestores.velero.io",
];

/// Resources served under two API groups: backed up once.
pub const COHABITATING_RESOURCES: &[(&str, &str, &str)] = &[
    ("deployments", "apps", "extensions"),
    ("daemonsets", "apps", "extensions"),
    ("replicasets", "apps", "extensions"),
    ("networkpolicies", "networking.k8s.io", "extensions"),
    ("events", "", "events.k8s.io"),
];

const DEFAULT_HIGH_PRIORITIES: &[&str] = &[
    "customresourcedefinitions",
    "namespaces",
    "storageclasses",
    "volumesnapshotclass.snapshot.storage.k8s.io",
    "volumesnapshotcontents.snapshot.storage.k8s.io",
    "volumesnapshots.snapshot.storage.k8s.io",
    "datauploads.velero.io",
    "persistentvolumes",
    "persistentvolumeclaims",
    "clusterroles",
    "roles",
    "serviceaccounts",
    "clusterrolebindings",
    "rolebindings",
    "secrets",
    "configmaps",
    "limitranges",
    "priorityclasses",
    "pods",
    "replicasets.apps",
    "clusterclasses.cluster.x-k8s.io",
    "endpoints",
    "services",
];

const DEFAULT_LOW_PRIORITIES: &[&str] = &[
    "clusterbootstraps.run.tanzu.vmware.com",
    "clusters.cluster.x-k8s.io",
    "clusterresourcesets.addons.cluster.x-k8s.io",
    "apps.kappctrl.k14s.io",
    "packageinstalls.packaging.carvel.dev",
];

/// Groups of the default priorities, for resources that discovery does not list.
const DEFAULT_GROUPS: &[(&str, &str)] = &[
    ("customresourcedefinitions", "apiextensions.k8s.io"),
    ("storageclasses", "storage.k8s.io"),
    ("clusterroles", "rbac.authorization.k8s.io"),
    ("roles", "rbac.authorization.k8s.io"),
    ("clusterrolebindings", "rbac.authorization.k8s.io"),
    ("rolebindings", "rbac.authorization.k8s.io"),
    ("priorityclasses", "scheduling.k8s.io"),
    ("volumesnapshotclass", "snapshot.storage.k8s.io"),
];

/// `--restore-resource-priorities`: resources restored first and last; the others come between, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestorePriorities {
    /// Restored first, in this order.
    pub high: Vec<String>,
    /// Restored last, in this order.
    pub low: Vec<String>,
}

impl Default for RestorePriorities {
    fn default() -> Self {
        let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        Self { high: owned(DEFAULT_HIGH_PRIORITIES), low: owned(DEFAULT_LOW_PRIORITIES) }
    }
}

impl std::str::FromStr for RestorePriorities {
    type Err = Error;

    /// Parses `a,b,-,y,z`: first a, b; last y, z. An empty text means the defaults.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if names.iter().any(String::is_empty) {
            return Err(Error::RestorePriorities(format!("empty name in {text:?}")));
        }
        let mut parts = names.split(|name| name == "-").map(<[String]>::to_vec);
        let (high, low) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if parts.next().is_some() {
            return Err(Error::RestorePriorities(format!("more than one separator \"-\" in {text:?}")));
        }
        Ok(Self { high, low })
    }
}

/// Restore priorities with resolved names: a rank for every resource.
#[derive(Debug, Clone)]
pub struct RestoreOrder {
    ranks: HashMap<String, u32>,
    middle: u32,
}

impl RestoreOrder {
    /// Resolves the names. An unknown resource may be defined by a CRD that the restore creates, so its name is kept as
    /// written.
    pub fn new(priorities: &RestorePriorities, mapper: &(impl ResourceMapper + ?Sized)) -> Self {
        let middle = u32::try_from(priorities.high.len()).unwrap_or(u32::MAX / 2);
        let mut ranks = HashMap::new();
        for (rank, name) in (0..).zip(&priorities.high) {
            ranks.entry(resolve(name, mapper)).or_insert(rank);
        }
        for (rank, name) in (middle + 1..).zip(&priorities.low) {
            ranks.entry(resolve(name, mapper)).or_insert(rank);
        }
        Self { ranks, middle }
    }

    /// The rank of a resource; resources of equal rank are ordered by name.
    pub fn rank(&self, group_resource: &str) -> u32 {
        self.ranks.get(group_resource).copied().unwrap_or(self.middle)
    }

    /// Sorts resources into restore order.
    pub fn sort<S: AsRef<str>>(&self, group_resources: &mut [S]) {
        group_resources.sort_by(|a, b| {
            let (a, b) = (a.as_ref(), b.as_ref());
            self.rank(a).cmp(&self.rank(b)).then_with(|| a.cmp(b))
        });
    }
}

fn resolve(name: &str, mapper: &(impl ResourceMapper + ?Sized)) -> String {
    if let Some(resolved) = mapper.resolve(name) {
        return resolved.group_resource;
    }
    let default = DEFAULT_GROUPS.iter().find(|(resource, _)| *resource == name);
    default.map_or_else(|| name.to_owned(), |(resource, group)| format!("{resource}.{group}"))
}

/// The rank of a resource in a backup: the core group first, with pods, claims and volumes before its other resources; then
/// the groups in discovery order, `extensions` last.
pub fn backup_rank(group: &str, resource: &str) -> u32 {
    match (group, resource) {
        ("", "pods") => 0,
        ("", "persistentvolumeclaims") => 1,
        ("", "persistentvolumes") => 2,
        ("", _) => 3,
        ("extensions", _) => 5,
        _ => 4,
    }
}

/// `spec.orderedResources`: objects backed up first within their resource: `pods: ns1/a,ns1/b`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrderedResources {
    by_resource: BTreeMap<String, Vec<String>>,
}

impl OrderedResources {
    /// Parses the field of a spec: comma-separated names, prefixed by a namespace for namespaced resources.
    pub fn new(field: &BTreeMap<String, String>) -> Self {
        let names =
            |text: &String| text.split(',').map(|name| name.trim().to_owned()).filter(|n| !n.is_empty()).collect();
        Self { by_resource: field.iter().map(|(resource, text)| (resource.clone(), names(text))).collect() }
    }

    /// The objects of a resource (`pods`, without group) that are backed up first.
    pub fn of(&self, resource: &str) -> &[String] {
        self.by_resource.get(resource).map_or(&[], Vec::as_slice)
    }

    /// The position of an object among those that are backed up first.
    pub fn position(&self, resource: &str, namespace: Option<&str>, name: &str) -> Option<usize> {
        self.of(resource).iter().position(|entry| match (entry.split_once('/'), namespace) {
            (Some((entry_namespace, entry_name)), Some(namespace)) => {
                entry_namespace == namespace && entry_name == name
            }
            (None, None) => entry == name,
            _ => false,
        })
    }
}
