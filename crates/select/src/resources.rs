//! API resources and resolution of their names.

/// A resource that a name resolved to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedResource {
    /// `pods`, `deployments.apps`.
    pub group_resource: String,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
}

/// Resolves names such as `po`, `pod`, `deploy` and `deployment.apps` to resources of the cluster, as a RESTMapper does.
pub trait ResourceMapper {
    /// The resource; `None` if the cluster has no such resource.
    fn resolve(&self, name: &str) -> Option<ResolvedResource>;
}

impl<F: Fn(&str) -> Option<ResolvedResource>> ResourceMapper for F {
    fn resolve(&self, name: &str) -> Option<ResolvedResource> {
        self(name)
    }
}

/// A resource from API discovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiscoveredResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// Plural name: `deployments`.
    pub plural: String,
    /// Singular name: `deployment`.
    pub singular: String,
    /// Kind: `Deployment`.
    pub kind: String,
    /// Short names: `deploy`.
    pub short_names: Vec<String>,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
}

impl DiscoveredResource {
    fn to_resolved(&self) -> ResolvedResource {
        ResolvedResource { group_resource: group_resource(&self.group, &self.plural), namespaced: self.namespaced }
    }
}

/// The resources of API discovery, in order of preference.
#[derive(Debug, Clone, Default)]
pub struct DiscoveredResources {
    resources: Vec<DiscoveredResource>,
}

impl DiscoveredResources {
    /// Takes the resources in order of preference.
    pub fn new(resources: Vec<DiscoveredResource>) -> Self {
        Self { resources }
    }
}

impl ResourceMapper for DiscoveredResources {
    fn resolve(&self, name: &str) -> Option<ResolvedResource> {
        let name = name.to_ascii_lowercase();
        let (resource, group) = name.split_once('.').map_or((name.as_str(), None), |(r, g)| (r, Some(g)));
        // A group may be abbreviated: `roles.rbac` is in `rbac.authorization.k8s.io`.
        let in_group = |candidate: &&DiscoveredResource| {
            group.is_none_or(|group| {
                candidate.group == group
                    || candidate.group.strip_prefix(group).is_some_and(|rest| rest.starts_with('.'))
            })
        };
        let find = |matches: &dyn Fn(&DiscoveredResource) -> bool| {
            let exact = |candidate: &&&DiscoveredResource| group.is_some_and(|group| candidate.group == group);
            let mut found =
                self.resources.iter().filter(in_group).filter(|candidate| matches(candidate)).collect::<Vec<_>>();
            found.sort_by_key(|candidate| !exact(&candidate));
            found.first().map(|candidate| candidate.to_resolved())
        };
        find(&|candidate| candidate.plural == resource)
            .or_else(|| {
                find(&|candidate| candidate.singular == resource || candidate.kind.to_ascii_lowercase() == resource)
            })
            .or_else(|| find(&|candidate| candidate.short_names.iter().any(|name| *name == resource)))
    }
}

/// `resource.group`, or the resource alone for the core group.
pub fn group_resource(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}
