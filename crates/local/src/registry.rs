//! The kinds that the API serves.

use crate::{builtin, definition, kind::Kind};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

type GroupVersionResource = (String, String, String);

/// Built-in kinds and those of the CustomResourceDefinitions.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// By group, version, plural.
    kinds: BTreeMap<GroupVersionResource, Arc<Kind>>,
    /// The kinds of each definition.
    defined: BTreeMap<String, Vec<GroupVersionResource>>,
}

impl Registry {
    pub fn with_built_in() -> Self {
        let mut registry = Self::default();
        for kind in builtin::kinds() {
            registry.kinds.insert(group_version_resource(&kind), Arc::new(kind));
        }
        registry
    }

    /// Adds or replaces the kinds of a definition.
    pub fn add_definition(&mut self, definition: &Value) {
        let kinds = definition::kinds(definition);
        let name = crate::object::text(definition, "/metadata/name").to_owned();
        self.remove_definition(&name);
        let resources = kinds.iter().map(group_version_resource).collect();
        self.kinds.extend(kinds.into_iter().map(|kind| (group_version_resource(&kind), Arc::new(kind))));
        self.defined.insert(name, resources);
    }

    /// Removes the kinds of a definition.
    pub fn remove_definition(&mut self, name: &str) {
        for group_version_resource in self.defined.remove(name).unwrap_or_default() {
            self.kinds.remove(&group_version_resource);
        }
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.kinds.get(&(group.to_owned(), version.to_owned(), plural.to_owned())).cloned()
    }

    /// Any version of a kind: owner references may name an old one.
    pub fn find_kind(&self, group: &str, kind: &str) -> Option<Arc<Kind>> {
        self.kinds.values().find(|known| known.group == group && known.kind == kind).cloned()
    }

    /// Any version of the kind stored under a resource.
    pub fn find_resource(&self, resource: &str) -> Option<Arc<Kind>> {
        self.kinds.values().find(|known| known.storage.is_none() && *known.resource() == *resource).cloned()
    }

    /// One version of each namespaced kind that stores objects.
    pub fn namespaced(&self) -> Vec<Arc<Kind>> {
        let mut seen = BTreeSet::new();
        let stored = self.kinds.values().filter(|kind| kind.namespaced && kind.storage.is_none());
        stored.filter(|kind| seen.insert(kind.group_resource())).cloned().collect()
    }

    /// Groups with their versions, the preferred one first; without the core group.
    pub fn groups(&self) -> BTreeMap<String, Vec<String>> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (group, version, _) in self.kinds.keys().filter(|(group, ..)| !group.is_empty()) {
            let versions = groups.entry(group.clone()).or_default();
            if !versions.contains(version) {
                versions.push(version.clone());
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|version| std::cmp::Reverse(definition::priority(version)));
        }
        groups
    }

    pub fn in_version(&self, group: &str, version: &str) -> Vec<Arc<Kind>> {
        self.kinds.values().filter(|kind| kind.group == group && kind.version == version).cloned().collect()
    }
}

fn group_version_resource(kind: &Kind) -> GroupVersionResource {
    (kind.group.clone(), kind.version.clone(), kind.plural.clone())
}
