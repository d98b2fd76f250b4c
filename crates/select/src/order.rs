//! In which order resources are backed up and restored.

use std::collections::{BTreeMap, HashMap};

use crate::Error;
use crate::resources::Lookup;

/// Resources that are never restored from an archive, whatever a spec says.
pub const NON_RESTORABLE: &[&str] = &[
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

/// Resources that are one and the same under two groups: backed up once.
pub const COHABITING: &[(&str, &str, &str)] = &[
    ("deployments", "apps", "extensions"),
    ("daemonsets", "apps", "extensions"),
    ("replicasets", "apps", "extensions"),
    ("networkpolicies", "networking.k8s.io", "extensions"),
    ("events", "", "events.k8s.io"),
];

const HIGH: &[&str] = &[
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

const LOW: &[&str] = &[
    "clusterbootstraps.run.tanzu.vmware.com",
    "clusters.cluster.x-k8s.io",
    "clusterresourcesets.addons.cluster.x-k8s.io",
    "apps.kappctrl.k14s.io",
    "packageinstalls.packaging.carvel.dev",
];

/// What a bare name in the defaults means where discovery cannot tell.
const HOME_GROUPS: &[(&str, &str)] = &[
    ("customresourcedefinitions", "apiextensions.k8s.io"),
    ("storageclasses", "storage.k8s.io"),
    ("clusterroles", "rbac.authorization.k8s.io"),
    ("roles", "rbac.authorization.k8s.io"),
    ("clusterrolebindings", "rbac.authorization.k8s.io"),
    ("rolebindings", "rbac.authorization.k8s.io"),
    ("priorityclasses", "scheduling.k8s.io"),
    ("volumesnapshotclass", "snapshot.storage.k8s.io"),
];

/// What is restored first and last; the rest comes between, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priorities {
    /// First, in this order.
    pub high: Vec<String>,
    /// Last, in this order.
    pub low: Vec<String>,
}

impl Default for Priorities {
    fn default() -> Self {
        let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        Self { high: owned(HIGH), low: owned(LOW) }
    }
}

impl std::str::FromStr for Priorities {
    type Err = Error;

    /// Reads `a,b,-,y,z`: first a, b; last y, z. An empty text means the defaults.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if names.iter().any(String::is_empty) {
            return Err(Error::Priorities(format!("{text:?} has an empty name")));
        }
        let mut parts = names.split(|name| name == "-").map(<[String]>::to_vec);
        let (high, low) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if parts.next().is_some() {
            return Err(Error::Priorities(format!("{text:?} has more than one separator \"-\"")));
        }
        Ok(Self { high, low })
    }
}

/// Priorities with their names resolved: a rank for every resource.
#[derive(Debug, Clone)]
pub struct RestoreOrder {
    ranks: HashMap<String, u32>,
    middle: u32,
}

impl RestoreOrder {
    /// Resolves the names. What the cluster does not know may come with a definition that is itself restored, so such
    /// a name stays as it is.
    pub fn new(priorities: &Priorities, lookup: &(impl Lookup + ?Sized)) -> Self {
        let middle = u32::try_from(priorities.high.len()).unwrap_or(u32::MAX / 2);
        let mut ranks = HashMap::new();
        for (rank, name) in (0..).zip(&priorities.high) {
            ranks.entry(resolve(name, lookup)).or_insert(rank);
        }
        for (rank, name) in (middle + 1..).zip(&priorities.low) {
            ranks.entry(resolve(name, lookup)).or_insert(rank);
        }
        Self { ranks, middle }
    }

    /// The rank of a resource; those of equal rank follow in the order of their names.
    pub fn rank(&self, group_resource: &str) -> u32 {
        self.ranks.get(group_resource).copied().unwrap_or(self.middle)
    }

    /// Sorts resources into the order in which they are restored.
    pub fn sort<S: AsRef<str>>(&self, group_resources: &mut [S]) {
        group_resources.sort_by(|a, b| {
            let (a, b) = (a.as_ref(), b.as_ref());
            self.rank(a).cmp(&self.rank(b)).then_with(|| a.cmp(b))
        });
    }
}

fn resolve(name: &str, lookup: &(impl Lookup + ?Sized)) -> String {
    if let Some(resolved) = lookup.resolve(name) {
        return resolved.group_resource;
    }
    let home = HOME_GROUPS.iter().find(|(resource, _)| *resource == name);
    home.map_or_else(|| name.to_owned(), |(resource, group)| format!("{resource}.{group}"))
}

/// The place of a resource in a backup: the core group first, in it pods, claims, volumes and then the rest; the
/// groups as discovery has them, `extensions` last.
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

/// Objects that a backup takes first within their resource, by resource: `pods: ns1/a,ns1/b`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrderedResources {
    by_resource: BTreeMap<String, Vec<String>>,
}

impl OrderedResources {
    /// Reads the field of a spec: names by comma, with their namespace where they have one.
    pub fn new(field: &BTreeMap<String, String>) -> Self {
        let names =
            |text: &String| text.split(',').map(|name| name.trim().to_owned()).filter(|n| !n.is_empty()).collect();
        Self { by_resource: field.iter().map(|(resource, text)| (resource.clone(), names(text))).collect() }
    }

    /// The objects of a resource (`pods`, without group) that come first.
    pub fn of(&self, resource: &str) -> &[String] {
        self.by_resource.get(resource).map_or(&[], Vec::as_slice)
    }

    /// The place of an object among those that come first.
    pub fn place(&self, resource: &str, namespace: Option<&str>, name: &str) -> Option<usize> {
        self.of(resource).iter().position(|wanted| match (wanted.split_once('/'), namespace) {
            (Some((space, wanted)), Some(namespace)) => space == namespace && wanted == name,
            (None, None) => wanted == name,
            _ => false,
        })
    }
}
