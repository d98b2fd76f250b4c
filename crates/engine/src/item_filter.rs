//! Filters of a Backup or Restore, applied to the resources of a cluster.

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

const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const CLAIMS: &str = "persistentvolumeclaims";

/// The compiled filters of a spec, with resolved resource names.
pub struct ItemFilter {
    selection: Selection,
    catalog: DiscoveredResources,
    by_item: bool,
    order: RestoreOrder,
    label_query: Option<String>,
    adds_crds: bool,
}

impl ItemFilter {
    /// The filters of a backup, for a cluster with these resources and namespaces.
    pub fn for_backup(
        spec: &BackupSpec,
        policies: Option<&ResourcePolicies>,
        resources: &[Resource],
        namespaces: &[String],
    ) -> Result<Self, Error> {
        let (filters, catalog) = (read(spec)?, catalog(resources));
        let selection = Selection::for_backup(&filters, policies, namespaces, &catalog).map_err(|e| invalid(&e))?;
        Ok(Self::new(selection, &filters, policies, catalog))
    }

    /// The filters of a restore, for a cluster with these resources.
    pub fn for_restore(
        spec: &RestoreSpec,
        policies: Option<&ResourcePolicies>,
        resources: &[Resource],
    ) -> Result<Self, Error> {
        let (filters, catalog) = (read(spec)?, catalog(resources));
        let selection = Selection::for_restore(&filters, policies, &catalog).map_err(|e| invalid(&e))?;
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
            by_item: by_policy || selection.has_selector(),
            order: RestoreOrder::new(&RestorePriorities::default(), &catalog),
            // A filter policy overrides the selector, so the API server must not apply the selector.
            label_query: filters.label_selector.as_ref().filter(|_| !by_policy).map(query_text),
            adds_crds: !mentions_crds(filters),
            selection,
            catalog,
        }
    }

    /// Another order of a restore.
    #[must_use]
    pub fn with_priorities(self, priorities: &RestorePriorities) -> Self {
        Self { order: RestoreOrder::new(priorities, &self.catalog), ..self }
    }

    /// The discovered resources of the cluster.
    pub fn catalog(&self) -> &DiscoveredResources {
        &self.catalog
    }

    /// Whether items are filtered by more than resource and namespace.
    pub fn filters_single_items(&self) -> bool {
        self.by_item
    }

    /// `orderedResources`: objects that come first within their resource.
    pub fn ordered(&self) -> &OrderedResources {
        self.selection.ordered()
    }

    /// The namespaces that are included by name.
    pub fn named_namespaces(&self) -> Vec<&str> {
        self.selection.named_namespaces().unwrap_or_default()
    }

    /// Whether a backup includes an additional item of an action.
    pub fn includes_additional_item(&self, group_resource: &str, meta: &ItemMeta) -> bool {
        let none = BTreeMap::new();
        self.selection.additional(&item_of(group_resource, meta, &none)).is_included()
    }

    /// Whether a backup includes a resource. Namespaces are read in any case: their items decide.
    pub fn includes_resource(&self, resource: &Resource) -> bool {
        self.selection.resource(&resource.group_resource(), resource.namespaced).is_included()
    }

    /// Whether PersistentVolumeClaims are included.
    pub fn includes_claims(&self) -> bool {
        self.selection.resource(CLAIMS, true).is_included()
    }

    /// Whether pods of a namespace are included.
    pub fn includes_pods_of(&self, namespace: &str) -> bool {
        self.includes_namespace(namespace) && self.selection.resource("pods", true).is_included()
    }

    /// Whether objects of a namespace are included.
    pub fn includes_namespace(&self, name: &str) -> bool {
        self.selection.namespace(name).is_included()
    }

    /// Whether all namespaces are included.
    pub fn includes_all_namespaces(&self) -> bool {
        self.selection.every_namespace()
    }

    /// Whether a backup includes an item.
    pub fn includes_item(&self, group_resource: &str, meta: &ItemMeta) -> bool {
        let none = BTreeMap::new();
        self.selection.item(&item_of(group_resource, meta, &none)) == FilterDecision::Include
    }

    /// Whether a backup includes a Namespace object. `has_items` says whether it includes items of the namespace.
    pub fn includes_namespace_object(&self, meta: &ItemMeta, has_items: bool) -> bool {
        let none = BTreeMap::new();
        let active = meta.deletion_timestamp.is_none();
        match self.selection.namespace_object(&meta.name, meta.labels.as_ref().unwrap_or(&none), active) {
            NamespaceInclusion::Always => true,
            NamespaceInclusion::WithItems => has_items,
            NamespaceInclusion::Never => false,
        }
    }

    /// The label selector that the API server can apply.
    pub fn label_query(&self) -> Option<String> {
        self.label_query.clone()
    }

    /// Whether the CustomResourceDefinitions of included items are added: the filters do not mention them.
    pub fn adds_crds_of_items(&self) -> bool {
        self.adds_crds
    }

    /// The position of a resource in the restore order.
    pub fn rank(&self, group_resource: &str) -> u32 {
        self.order.rank(group_resource)
    }

    /// Whether an item of the archive is restored.
    pub fn restores_item(
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

    /// Whether an additional item of an action is restored.
    pub fn restores_additional_item(&self, group_resource: &str, namespace: Option<&str>, name: &str) -> bool {
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

/// The fields of the filters have the same names in the spec.
fn read(spec: &impl Serialize) -> Result<Filters, Error> {
    let read = serde_json::to_value(spec).and_then(serde_json::from_value);
    read.map_err(|error| Error::Selection(format!("invalid filters: {error}")))
}

fn invalid(error: &plimsoll_select::Error) -> Error {
    Error::Selection(error.to_string())
}

fn catalog(resources: &[Resource]) -> DiscoveredResources {
    let to_discovered = |resource: &Resource| DiscoveredResource {
        group: resource.group.clone(),
        plural: resource.plural.clone(),
        singular: resource.kind.to_lowercase(),
        kind: resource.kind.clone(),
        short_names: resource.aliases.clone(),
        namespaced: resource.namespaced,
    };
    DiscoveredResources::new(resources.iter().map(to_discovered).collect())
}

fn mentions_crds(filters: &Filters) -> bool {
    let lists = [
        &filters.included_resources,
        &filters.excluded_resources,
        &filters.included_cluster_scoped_resources,
        &filters.excluded_cluster_scoped_resources,
    ];
    let names = ["crd", "crds", "customresourcedefinition", "customresourcedefinitions", CRDS];
    filters.include_cluster_resources == Some(false)
        || lists.into_iter().flatten().any(|name| names.contains(&name.to_lowercase().as_str()))
}

/// A selector in its string form.
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
