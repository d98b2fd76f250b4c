//! What the filters of a spec mean for the resources of a cluster.

use std::collections::BTreeMap;

use plimsoll_api::velero::v1::{BackupSpec, RestoreSpec};
use plimsoll_select::labels::LabelSelector;
use plimsoll_select::resource_order::{OrderedResources, RestoreOrder, RestorePriorities};
use plimsoll_select::resource_policies::ResourcePolicies;
use plimsoll_select::resources::{DiscoveredResource, DiscoveredResources};
use plimsoll_select::selection::{Filters, Item, NamespaceInclusion};
use plimsoll_select::{FilterDecision, Selection};
use serde::Serialize;

use crate::Error;
use crate::cluster::{ItemMeta, Resource};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const CLAIMS: &str = "persistentvolumeclaims";

/// The filters of one spec, compiled, with the names of its resources resolved.
pub struct Selecting {
    selection: Selection,
    catalog: DiscoveredResources,
    finer: bool,
    order: RestoreOrder,
    label_query: Option<String>,
    adds_definitions: bool,
}

impl Selecting {
    /// The filters of a backup, for a cluster with these resources and namespaces.
    pub fn for_backup(
        spec: &BackupSpec,
        policies: Option<&ResourcePolicies>,
        resources: &[Resource],
        namespaces: &[String],
    ) -> Result<Self, Error> {
        let (filters, catalog) = (read(spec)?, catalog(resources));
        let selection = Selection::for_backup(&filters, policies, namespaces, &catalog).map_err(|e| refused(&e))?;
        Ok(Self::new(selection, &filters, policies, catalog))
    }

    /// The filters of a restore, for a cluster with these resources.
    pub fn for_restore(
        spec: &RestoreSpec,
        policies: Option<&ResourcePolicies>,
        resources: &[Resource],
    ) -> Result<Self, Error> {
        let (filters, catalog) = (read(spec)?, catalog(resources));
        let selection = Selection::for_restore(&filters, policies, &catalog).map_err(|e| refused(&e))?;
        Ok(Self::new(selection, &filters, policies, catalog))
    }

    fn new(
        selection: Selection,
        filters: &Filters,
        policies: Option<&ResourcePolicies>,
        catalog: DiscoveredResources,
    ) -> Self {
        let by_policy = policies.is_some_and(ResourcePolicies::has_filters);
        Self {
            finer: by_policy || selection.has_selector(),
            order: RestoreOrder::new(&RestorePriorities::default(), &catalog),
            // A filter policy takes the place of the selector for what it covers, so the API server must not apply it.
            label_query: filters.label_selector.as_ref().filter(|_| !by_policy).map(query_text),
            adds_definitions: !decides_about_definitions(filters),
            selection,
            catalog,
        }
    }

    /// The names of the cluster's resources.
    pub fn catalog(&self) -> &DiscoveredResources {
        &self.catalog
    }

    /// Whether more than its resource and its namespace decides about an item.
    pub fn is_finer_than_resources(&self) -> bool {
        self.finer
    }

    /// Objects that come first within their resource.
    pub fn ordered(&self) -> &OrderedResources {
        self.selection.ordered()
    }

    /// The namespaces that are included by their own names, if that is how namespaces are chosen.
    pub fn named_namespaces(&self) -> Vec<&str> {
        self.selection.named_namespaces().unwrap_or_default()
    }

    /// Whether an item that an action asked for goes into a backup.
    pub fn adds(&self, group_resource: &str, meta: &ItemMeta) -> bool {
        let none = BTreeMap::new();
        self.selection.additional(&item_of(group_resource, meta, &none)).is_included()
    }

    /// Whether anything of a resource is kept in a backup. Namespaces are read in any case: what they hold decides.
    pub fn resource(&self, resource: &Resource) -> bool {
        self.selection.resource(&resource.group_resource(), resource.namespaced).is_included()
    }

    /// Whether claims are kept at all.
    pub fn claims(&self) -> bool {
        self.selection.resource(CLAIMS, true).is_included()
    }

    /// Whether pods of a namespace are kept.
    pub fn pods_of(&self, namespace: &str) -> bool {
        self.namespace(namespace) && self.selection.resource("pods", true).is_included()
    }

    /// Whether objects of a namespace are kept.
    pub fn namespace(&self, name: &str) -> bool {
        self.selection.namespace(name).is_included()
    }

    /// Whether no namespace is left out.
    pub fn every_namespace(&self) -> bool {
        self.selection.every_namespace()
    }

    /// Whether a listed item is kept in a backup.
    pub fn keeps(&self, group_resource: &str, meta: &ItemMeta) -> bool {
        let none = BTreeMap::new();
        self.selection.item(&item_of(group_resource, meta, &none)) == FilterDecision::Include
    }

    /// Whether the object of a namespace is kept in a backup, of which `inhabited` says whether anything in it is.
    pub fn keeps_namespace(&self, meta: &ItemMeta, inhabited: bool) -> bool {
        let none = BTreeMap::new();
        let active = meta.deletion_timestamp.is_none();
        match self.selection.namespace_object(&meta.name, meta.labels.as_ref().unwrap_or(&none), active) {
            NamespaceInclusion::Always => true,
            NamespaceInclusion::WithItems => inhabited,
            NamespaceInclusion::Never => false,
        }
    }

    /// The selector that the API server can apply by itself.
    pub fn label_query(&self) -> Option<String> {
        self.label_query.clone()
    }

    /// Whether the definitions of kept custom resources are kept, because nobody said anything about definitions.
    pub fn adds_definitions(&self) -> bool {
        self.adds_definitions
    }

    /// The place of a resource in the order of a restore.
    pub fn rank(&self, group_resource: &str) -> u32 {
        self.order.rank(group_resource)
    }

    /// Whether an object of the archive is restored.
    pub fn restores(
        &self,
        group_resource: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        labels: Option<&BTreeMap<String, String>>,
    ) -> bool {
        let none = BTreeMap::new();
        let labels = labels.unwrap_or(&none);
        let item = Item { group_resource, kind, namespace, name, labels, deleting: false };
        self.selection.resource(group_resource, namespace.is_some()).is_included()
            && self.selection.item(&item).is_included()
    }

    /// Whether an object that an action asked for is restored.
    pub fn restores_additional(&self, group_resource: &str, namespace: Option<&str>, name: &str) -> bool {
        let item = Item { group_resource, kind: "", namespace, name, labels: &(), deleting: false };
        self.selection.additional_to_restore(&item).is_included()
    }
}

fn item_of<'a>(group_resource: &'a str, meta: &'a ItemMeta, none: &'a BTreeMap<String, String>) -> Item<'a> {
    Item {
        group_resource,
        kind: "",
        namespace: meta.namespace.as_deref(),
        name: &meta.name,
        labels: meta.labels.as_ref().unwrap_or(none),
        deleting: meta.deletion_timestamp.is_some(),
    }
}

/// The filters stand in the spec under the same names.
fn read(spec: &impl Serialize) -> Result<Filters, Error> {
    let read = serde_json::to_value(spec).and_then(serde_json::from_value);
    read.map_err(|error| Error::Selection(format!("the filters cannot be read: {error}")))
}

fn refused(error: &plimsoll_select::Error) -> Error {
    Error::Selection(error.to_string())
}

fn catalog(resources: &[Resource]) -> DiscoveredResources {
    let known = |resource: &Resource| DiscoveredResource {
        group: resource.group.clone(),
        plural: resource.plural.clone(),
        singular: resource.kind.to_lowercase(),
        kind: resource.kind.clone(),
        short_names: resource.aliases.clone(),
        namespaced: resource.namespaced,
    };
    DiscoveredResources::new(resources.iter().map(known).collect())
}

fn decides_about_definitions(filters: &Filters) -> bool {
    let lists = [
        &filters.included_resources,
        &filters.excluded_resources,
        &filters.included_cluster_scoped_resources,
        &filters.excluded_cluster_scoped_resources,
    ];
    let names = ["crd", "crds", "customresourcedefinition", "customresourcedefinitions", DEFINITIONS];
    filters.include_cluster_resources == Some(false)
        || lists.into_iter().flatten().any(|name| names.contains(&name.to_lowercase().as_str()))
}

/// A selector as a query has it.
fn query_text(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let set = selector.match_expressions.iter().flatten().map(|expression| {
        let values = expression.values.iter().flatten().cloned().collect::<Vec<_>>().join(",");
        match expression.operator.as_str() {
            "In" => format!("{} in ({values})", expression.key),
            "NotIn" => format!("{} notin ({values})", expression.key),
            "DoesNotExist" => format!("!{}", expression.key),
            _ => expression.key.clone(),
        }
    });
    equal.chain(set).collect::<Vec<_>>().join(",")
}
