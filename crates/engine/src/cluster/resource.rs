//! Resources by name, and their URL paths.

/// A resource that the API server serves, in its preferred version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Plural name, as in URLs.
    pub plural: String,
    /// Kind.
    pub kind: String,
    /// Whether it is namespaced.
    pub namespaced: bool,
    /// Singular and short names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

impl Resource {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods`, `deployments.apps`: the name in archives and filters.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `apps/v1/Deployment`: the key in the resource list.
    pub fn list_key(&self) -> String {
        format!("{}/{}", self.api_version(), self.kind)
    }

    /// The path of its collection, in one namespace or in all.
    pub fn path(&self, namespace: Option<&str>) -> String {
        collection_path(&self.api_version(), &self.plural, namespace)
    }
}

/// The URL path of a collection.
pub fn collection_path(api_version: &str, plural: &str, namespace: Option<&str>) -> String {
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    match namespace {
        Some(namespace) => format!("{root}/{api_version}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{api_version}/{plural}"),
    }
}

#[cfg(test)]
pub(super) fn pods() -> Resource {
    Resource {
        group: String::new(),
        version: "v1".into(),
        plural: "pods".into(),
        kind: "Pod".into(),
        namespaced: true,
        aliases: vec![],
    }
}
