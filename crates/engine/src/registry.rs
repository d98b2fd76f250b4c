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
