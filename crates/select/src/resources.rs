//! Resources and the names people give them.

/// What a name resolved to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// `pods`, `deployments.apps`.
    pub group_resource: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

/// Turns what people write (`po`, `pod`, `deploy`, `deployment.apps`) into a resource of the cluster.
pub trait Lookup {
    /// The resource, or nothing if the cluster has no such thing.
    fn resolve(&self, name: &str) -> Option<Resolved>;
}

impl<F: Fn(&str) -> Option<Resolved>> Lookup for F {
    fn resolve(&self, name: &str) -> Option<Resolved> {
        self(name)
    }
}

/// A resource as discovery tells of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// The API group, empty for the core.
    pub group: String,
    /// The plural: `deployments`.
    pub plural: String,
    /// The singular: `deployment`.
    pub singular: String,
    /// The kind: `Deployment`.
    pub kind: String,
    /// `deploy`.
    pub short: Vec<String>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

impl Known {
    fn resolved(&self) -> Resolved {
        Resolved { group_resource: group_resource(&self.group, &self.plural), namespaced: self.namespaced }
    }
}

/// A list of what discovery told, earlier ones preferred.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    known: Vec<Known>,
}

impl Catalog {
    /// A catalog of these resources, in order of preference.
    pub fn new(known: Vec<Known>) -> Self {
        Self { known }
    }
}

impl Lookup for Catalog {
    fn resolve(&self, name: &str) -> Option<Resolved> {
        let name = name.to_ascii_lowercase();
        let (resource, group) = name.split_once('.').map_or((name.as_str(), None), |(r, g)| (r, Some(g)));
        // A group may be abbreviated: `roles.rbac` is in `rbac.authorization.k8s.io`.
        let in_group = |known: &&Known| {
            group.is_none_or(|group| {
                known.group == group || known.group.strip_prefix(group).is_some_and(|rest| rest.starts_with('.'))
            })
        };
        let by = |matches: &dyn Fn(&Known) -> bool| {
            let exact = |known: &&&Known| group.is_some_and(|group| known.group == group);
            let mut found = self.known.iter().filter(in_group).filter(|known| matches(known)).collect::<Vec<_>>();
            found.sort_by_key(|known| !exact(&known));
            found.first().map(|known| known.resolved())
        };
        by(&|known| known.plural == resource)
            .or_else(|| by(&|known| known.singular == resource || known.kind.to_ascii_lowercase() == resource))
            .or_else(|| by(&|known| known.short.iter().any(|short| *short == resource)))
    }
}

/// `resource.group`, or the resource alone for the core group.
pub fn group_resource(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}
