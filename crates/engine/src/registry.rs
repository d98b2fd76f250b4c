//! Item actions in the order in which they run: built-ins first, then plugins.
//!
//! One registry for each kind of action, built-in and plugin. As in Velero, built-in actions are ordered by the version of
//! their interface and then by name, plugins by the path of their binary and then by name.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_select::includes::IncludesExcludes;
use plimsoll_select::labels::{Labels, Selector};
use plimsoll_select::resources::ResourceMapper;

use crate::Error;

/// Source of an action. The order of the variants is the order in which actions run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Built-in, for this version of the interface.
    BuiltIn(u8),
    /// The binary of a plugin.
    Plugin(PathBuf),
}

/// The items that an action applies to. Empty lists and no selector mean all.
#[derive(Clone, Debug, Default)]
pub struct AppliesTo {
    /// Included namespaces, with globs.
    pub included_namespaces: Vec<String>,
    /// Excluded namespaces.
    pub excluded_namespaces: Vec<String>,
    /// Included resources, by any name that discovery reports.
    pub included_resources: Vec<String>,
    /// Excluded resources.
    pub excluded_resources: Vec<String>,
    /// Label selector in its string form.
    pub selector: String,
}

impl AppliesTo {
    /// All objects of these resources.
    pub fn resources<const N: usize>(names: [&str; N]) -> Self {
        Self { included_resources: names.map(str::to_owned).to_vec(), ..Self::default() }
    }

    /// Restricts it to objects with these labels.
    #[must_use]
    pub fn with_labels(mut self, selector: &str) -> Self {
        selector.clone_into(&mut self.selector);
        self
    }
}

struct Entry<A: ?Sized> {
    source: Source,
    name: String,
    namespaces: IncludesExcludes,
    resources: IncludesExcludes,
    selector: Selector,
    action: Arc<A>,
}

/// Actions of one kind.
pub struct Registry<A: ?Sized> {
    entries: Vec<Entry<A>>,
}

impl<A: ?Sized> Default for Registry<A> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<A: ?Sized> Registry<A> {
    /// Adds an action in order. `mapper` resolves the names of resources. A second action of the same name is an error.
    pub fn register(
        &mut self,
        source: Source,
        name: &str,
        applies_to: &AppliesTo,
        mapper: &(impl ResourceMapper + ?Sized),
        action: Arc<A>,
    ) -> Result<(), Error> {
        if self.entries.iter().any(|entry| entry.name == name) {
            return Err(Error::Selection(format!("duplicate item action {name}")));
        }
        let invalid = |error: plimsoll_select::Error| Error::Selection(format!("item action {name}: {error}"));
        let resolve = |names: &[String]| -> Vec<String> {
            names.iter().map(|n| mapper.resolve(n).map_or_else(|| n.clone(), |found| found.group_resource)).collect()
        };
        let entry = Entry {
            namespaces: IncludesExcludes::new(&applies_to.included_namespaces, &applies_to.excluded_namespaces)
                .map_err(invalid)?,
            resources: IncludesExcludes::new(
                &resolve(&applies_to.included_resources),
                &resolve(&applies_to.excluded_resources),
            )
            .map_err(invalid)?,
            selector: Selector::parse(&applies_to.selector).map_err(invalid)?,
            source,
            name: name.to_owned(),
            action,
        };
        let index = self.entries.partition_point(|other| (&other.source, &other.name) < (&entry.source, &entry.name));
        self.entries.insert(index, entry);
        Ok(())
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The action of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<A>> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| &entry.action)
    }

    /// Whether any action applies to a resource. Objects of other resources are copied unparsed.
    pub fn applies_to_resource(&self, group_resource: &str) -> bool {
        self.entries.iter().any(|entry| entry.resources.includes(group_resource))
    }

    /// The actions that apply to a resource, regardless of namespace and labels.
    pub fn for_resource(&self, group_resource: &str) -> impl Iterator<Item = &Arc<A>> {
        self.entries.iter().filter(move |entry| entry.resources.includes(group_resource)).map(|entry| &entry.action)
    }

    /// Whether there are no actions.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All actions, in order.
    pub fn actions(&self) -> impl Iterator<Item = &Arc<A>> {
        self.entries.iter().map(|entry| &entry.action)
    }

    /// The actions that apply to an item, in order, each with its name.
    pub fn for_item<'a>(
        &'a self,
        group_resource: &'a str,
        namespace: Option<&'a str>,
        labels: &'a (dyn Labels + Sync),
    ) -> impl Iterator<Item = (&'a str, &'a Arc<A>)> {
        self.entries
            .iter()
            .filter(move |entry| entry.matches(group_resource, namespace, labels))
            .map(|entry| (entry.name.as_str(), &entry.action))
    }
}

impl<A: ?Sized> Entry<A> {
    fn matches(&self, group_resource: &str, namespace: Option<&str>, labels: &(dyn Labels + Sync)) -> bool {
        let in_namespace = match namespace {
            Some(namespace) => self.namespaces.includes(namespace),
            None => self.namespaces.includes_everything(),
        };
        self.resources.includes(group_resource) && in_namespace && self.selector.matches(labels)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plimsoll_select::resources::{DiscoveredResource, DiscoveredResources};

    use super::*;

    fn catalog() -> DiscoveredResources {
        DiscoveredResources::new(vec![DiscoveredResource {
            plural: "pods".into(),
            short_names: vec!["po".into()],
            namespaced: true,
            ..DiscoveredResource::default()
        }])
    }

    fn registry(entries: &[(Source, &str, AppliesTo)]) -> Registry<str> {
        let mut registry = Registry::default();
        for (source, name, applies) in entries {
            registry.register(source.clone(), name, applies, &catalog(), Arc::from("")).unwrap();
        }
        registry
    }

    #[test]
    fn built_ins_are_ordered_before_plugins() {
        let any = AppliesTo::default;
        let registry = registry(&[
            (Source::Plugin("/plugins/b".into()), "a.io/z", any()),
            (Source::Plugin("/plugins/a".into()), "z.io/y", any()),
            (Source::BuiltIn(2), "velero.io/csi", any()),
            (Source::BuiltIn(1), "velero.io/pv", any()),
            (Source::BuiltIn(1), "velero.io/pod", any()),
        ]);
        let names: Vec<_> = registry.names().collect();
        assert_eq!(names, ["velero.io/pod", "velero.io/pv", "velero.io/csi", "z.io/y", "a.io/z"]);
    }

    #[test]
    fn actions_are_matched_by_resource_and_labels() {
        let registry = registry(&[(Source::BuiltIn(1), "x", AppliesTo::resources(["po"]).with_labels("app=shop"))]);
        let shop = BTreeMap::from([("app".to_owned(), "shop".to_owned())]);
        let none = BTreeMap::new();
        assert!(registry.applies_to_resource("pods") && !registry.applies_to_resource("secrets"));
        assert_eq!(registry.for_item("pods", Some("ns"), &shop).count(), 1);
        assert_eq!(registry.for_item("pods", Some("ns"), &none).count(), 0);
    }

    #[test]
    fn an_action_with_namespaces_does_not_match_cluster_scoped_items() {
        let applies = AppliesTo { included_namespaces: vec!["shop-*".into()], ..AppliesTo::default() };
        let registry = registry(&[(Source::BuiltIn(1), "x", applies)]);
        let none = BTreeMap::new();
        assert_eq!(registry.for_item("pods", Some("shop-a"), &none).count(), 1);
        assert_eq!(registry.for_item("pods", Some("other"), &none).count(), 0);
        assert_eq!(registry.for_item("nodes", None, &none).count(), 0);
    }

    #[test]
    fn duplicate_names_are_errors() {
        let mut registry = registry(&[(Source::BuiltIn(1), "x", AppliesTo::default())]);
        let duplicate = registry.register(Source::BuiltIn(2), "x", &AppliesTo::default(), &catalog(), Arc::from(""));
        assert_eq!(duplicate.unwrap_err().to_string(), "duplicate item action x");
    }
}
