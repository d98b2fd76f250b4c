//! Item actions in the order in which they run: built-ins first, then plugins.
//!
//! One registry for each kind of action, native and plugin alike. Built-ins come in the order of the interface they were
//! written for and then by name, plugins by the path of their binary and then by name: the order users know.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_select::includes::IncludesExcludes;
use plimsoll_select::labels::{Labels, Selector};
use plimsoll_select::resources::ResourceMapper;

use crate::Error;

/// Where an action comes from; the order of the variants is the order in which actions run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Part of this program, written for this version of the interface.
    BuiltIn(u8),
    /// A plugin's binary.
    Plugin(PathBuf),
}

/// What an action asks to see; empty lists and no selector mean everything.
#[derive(Clone, Debug, Default)]
pub struct AppliesTo {
    /// Namespaces, with globs.
    pub included_namespaces: Vec<String>,
    /// Namespaces it does not want.
    pub excluded_namespaces: Vec<String>,
    /// Resources, by any name the cluster knows them by.
    pub included_resources: Vec<String>,
    /// Resources it does not want.
    pub excluded_resources: Vec<String>,
    /// Labels, as in a query.
    pub selector: String,
}

impl AppliesTo {
    /// Every object of these resources.
    pub fn resources<const N: usize>(names: [&str; N]) -> Self {
        Self { included_resources: names.map(str::to_owned).to_vec(), ..Self::default() }
    }

    /// Those with these labels.
    #[must_use]
    pub fn labelled(mut self, selector: &str) -> Self {
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
    /// Adds an action at its place. `lookup` knows the names of the cluster's resources. A second action of the same name is
    /// refused: nobody could tell which of them runs.
    pub fn register(
        &mut self,
        source: Source,
        name: &str,
        applies_to: &AppliesTo,
        mapper: &(impl ResourceMapper + ?Sized),
        action: Arc<A>,
    ) -> Result<(), Error> {
        if self.entries.iter().any(|entry| entry.name == name) {
            return Err(Error::Selection(format!("two item actions are called {name}")));
        }
        let refused = |error: plimsoll_select::Error| Error::Selection(format!("item action {name}: {error}"));
        let resolve = |names: &[String]| -> Vec<String> {
            names.iter().map(|n| mapper.resolve(n).map_or_else(|| n.clone(), |found| found.group_resource)).collect()
        };
        let entry = Entry {
            namespaces: IncludesExcludes::new(&applies_to.included_namespaces, &applies_to.excluded_namespaces)
                .map_err(refused)?,
            resources: IncludesExcludes::new(
                &resolve(&applies_to.included_resources),
                &resolve(&applies_to.excluded_resources),
            )
            .map_err(refused)?,
            selector: Selector::parse(&applies_to.selector).map_err(refused)?,
            source,
            name: name.to_owned(),
            action,
        };
        let place = self.entries.partition_point(|other| (&other.source, &other.name) < (&entry.source, &entry.name));
        self.entries.insert(place, entry);
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

    /// Whether any action may want objects of a resource. Those that none wants pass untouched, as bytes.
    pub fn touches(&self, group_resource: &str) -> bool {
        self.entries.iter().any(|entry| entry.resources.includes(group_resource))
    }

    /// The actions that may want objects of a resource, whatever their namespace and labels.
    pub fn wanting(&self, group_resource: &str) -> impl Iterator<Item = &Arc<A>> {
        self.entries.iter().filter(move |entry| entry.resources.includes(group_resource)).map(|entry| &entry.action)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All actions, in order.
    pub fn actions(&self) -> impl Iterator<Item = &Arc<A>> {
        self.entries.iter().map(|entry| &entry.action)
    }

    /// The actions that want an object, in order, each with its name.
    pub fn applying<'a>(
        &'a self,
        group_resource: &'a str,
        namespace: Option<&'a str>,
        labels: &'a (dyn Labels + Sync),
    ) -> impl Iterator<Item = (&'a str, &'a Arc<A>)> {
        self.entries
            .iter()
            .filter(move |entry| entry.wants(group_resource, namespace, labels))
            .map(|entry| (entry.name.as_str(), &entry.action))
    }
}

impl<A: ?Sized> Entry<A> {
    fn wants(&self, group_resource: &str, namespace: Option<&str>, labels: &(dyn Labels + Sync)) -> bool {
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
    fn built_ins_come_first_by_version_and_name_and_plugins_by_binary_and_name() {
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
    fn an_action_sees_what_it_asked_for() {
        let registry = registry(&[(Source::BuiltIn(1), "x", AppliesTo::resources(["po"]).labelled("app=shop"))]);
        let shop = BTreeMap::from([("app".to_owned(), "shop".to_owned())]);
        let none = BTreeMap::new();
        assert!(registry.touches("pods") && !registry.touches("secrets"));
        assert_eq!(registry.applying("pods", Some("ns"), &shop).count(), 1);
        assert_eq!(registry.applying("pods", Some("ns"), &none).count(), 0);
    }

    #[test]
    fn an_action_for_some_namespaces_sees_nothing_without_one() {
        let applies = AppliesTo { included_namespaces: vec!["shop-*".into()], ..AppliesTo::default() };
        let registry = registry(&[(Source::BuiltIn(1), "x", applies)]);
        let none = BTreeMap::new();
        assert_eq!(registry.applying("pods", Some("shop-a"), &none).count(), 1);
        assert_eq!(registry.applying("pods", Some("other"), &none).count(), 0);
        assert_eq!(registry.applying("nodes", None, &none).count(), 0);
    }

    #[test]
    fn two_actions_of_one_name_are_refused() {
        let mut registry = registry(&[(Source::BuiltIn(1), "x", AppliesTo::default())]);
        let again = registry.register(Source::BuiltIn(2), "x", &AppliesTo::default(), &catalog(), Arc::from(""));
        assert_eq!(again.unwrap_err().to_string(), "two item actions are called x");
    }
}
