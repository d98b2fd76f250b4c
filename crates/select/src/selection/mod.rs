//! The compiled filters of a spec.

mod filters;
mod resource_filter;

use filters::qualified_object_name;
pub use filters::{Filters, Purpose};
use resource_filter::ResourceFilter;

use crate::Error;
use crate::includes::IncludesExcludes;
use crate::labels::{Labels, Selector};
use crate::resource_order::{NON_RESTORABLE_RESOURCES, OrderedResources};
use crate::resource_policies::{FilterPolicies, ResourcePolicies};
use crate::resources::ResourceMapper;

/// Label that excludes an object from every backup if set to "true".
pub const EXCLUDE_LABEL: &str = "velero.io/exclude-from-backup";

/// Backed up only as additional items of an action: the backup creates such objects itself.
const AUTO_EXCLUDED: &[&str] =
    &["volumesnapshots.snapshot.storage.k8s.io", "volumesnapshotcontents.snapshot.storage.k8s.io"];

/// Restored regardless of the filters: other objects depend on them.
const ALWAYS_RESTORED: &[&str] = &["datauploads.velero.io"];

const NAMESPACES: &str = "namespaces";

/// Whether an object or resource is included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterDecision {
    /// Included.
    Include,
    /// Excluded, and why.
    Exclude(ExclusionReason),
}

/// Why an object is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExclusionReason {
    /// Its resource is excluded.
    Resource,
    /// Its resource is never restored.
    NonRestorable,
    /// It is cluster-scoped, and only namespaced objects are included.
    ClusterScope,
    /// Its namespace is excluded.
    Namespace,
    /// Its labels do not match.
    Labels,
    /// A filter policy does not list its kind or its name.
    FilterPolicy,
    /// It has the label [`EXCLUDE_LABEL`].
    ExcludeLabel,
    /// It is being deleted.
    Deleting,
}

impl ExclusionReason {
    /// The stable name of this reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Resource => "ResourceExcluded",
            Self::NonRestorable => "NonRestorable",
            Self::ClusterScope => "ClusterScopeExcluded",
            Self::Namespace => "NamespaceExcluded",
            Self::Labels => "LabelsDoNotMatch",
            Self::FilterPolicy => "FilterPolicyExcluded",
            Self::ExcludeLabel => "ExcludedByLabel",
            Self::Deleting => "BeingDeleted",
        }
    }
}

impl FilterDecision {
    /// Whether it is included.
    pub fn is_included(self) -> bool {
        self == Self::Include
    }

    /// The next decision if this one includes, otherwise this one.
    fn and(self, next: impl FnOnce() -> Self) -> Self {
        if self.is_included() { next() } else { self }
    }
}

fn exclude_if(excluded: bool, reason: ExclusionReason) -> FilterDecision {
    if excluded { FilterDecision::Exclude(reason) } else { FilterDecision::Include }
}

/// Whether a backup includes the Namespace object itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceInclusion {
    /// Always.
    Always,
    /// If it includes an object of the namespace.
    WithItems,
    /// Never.
    Never,
}

/// The properties of an object that filters refer to.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    /// `pods`, `deployments.apps`.
    pub group_resource: &'a str,
    /// `Pod`; empty if unknown. Only used by filter policies for kinds that discovery does not list.
    pub kind: &'a str,
    /// `None` for cluster-scoped objects.
    pub namespace: Option<&'a str>,
    /// The name.
    pub name: &'a str,
    /// The labels.
    pub labels: &'a dyn Labels,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
}

impl std::fmt::Debug for Item<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.group_resource, qualified_object_name(self.namespace, self.name))
    }
}

/// The compiled filters of a spec: patterns, selectors, policies.
///
/// Call [`Selection::resource`] once for a resource and [`Selection::item`] for each of its objects.
#[derive(Debug, Clone)]
pub struct Selection {
    purpose: Purpose,
    namespaces: IncludesExcludes,
    every_namespace: bool,
    resources: ResourceFilter,
    /// An object must match one of them; `None` if there is no selector.
    selectors: Option<Vec<Selector>>,
    filter_policies: FilterPolicies,
    ordered: OrderedResources,
}

impl Selection {
    /// Compiles the filters of a backup. `namespaces` are those of the cluster: patterns that match all of them select the
    /// whole cluster, as an empty list does.
    pub fn for_backup(
        filters: &Filters,
        policies: Option<&ResourcePolicies>,
        namespaces: &[String],
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Result<Self, Error> {
        Self::compile(Purpose::Backup, filters, policies, namespaces, mapper)
    }

    /// Compiles the filters of a restore.
    pub fn for_restore(
        filters: &Filters,
        policies: Option<&ResourcePolicies>,
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Result<Self, Error> {
        Self::compile(Purpose::Restore, filters, policies, &[], mapper)
    }

    fn compile(
        purpose: Purpose,
        filters: &Filters,
        policies: Option<&ResourcePolicies>,
        cluster: &[String],
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Result<Self, Error> {
        filters.ensure_valid(purpose)?;
        let namespaces = IncludesExcludes::new(&filters.included_namespaces, &filters.excluded_namespaces)?;
        let every_namespace = namespaces.includes_all_of(cluster);
        let include_exclude = policies.and_then(ResourcePolicies::include_exclude);
        Ok(Self {
            purpose,
            every_namespace,
            resources: ResourceFilter::compile(purpose, filters, include_exclude, every_namespace, mapper)?,
            namespaces,
            selectors: filters.selectors()?,
            filter_policies: policies
                .map_or_else(|| Ok(FilterPolicies::default()), |policies| policies.compile_filters(mapper))?,
            ordered: OrderedResources::new(&filters.ordered_resources),
        })
    }

    /// Whether the filters can include objects of a resource.
    pub fn resource(&self, group_resource: &str, namespaced: bool) -> FilterDecision {
        match self.purpose {
            Purpose::Backup if AUTO_EXCLUDED.contains(&group_resource) => {
                FilterDecision::Exclude(ExclusionReason::Resource)
            }
            Purpose::Restore if ALWAYS_RESTORED.contains(&group_resource) => FilterDecision::Include,
            Purpose::Restore if NON_RESTORABLE_RESOURCES.contains(&group_resource) => {
                FilterDecision::Exclude(ExclusionReason::NonRestorable)
            }
            _ => self.resources.selects(group_resource, namespaced),
        }
    }

    /// Whether the filters can include objects of a namespace.
    pub fn namespace(&self, name: &str) -> FilterDecision {
        exclude_if(!self.namespaces.includes(name), ExclusionReason::Namespace)
    }

    /// Whether an object of an included resource is included. For Namespace objects of a backup see
    /// [`Selection::namespace_object`].
    pub fn item(&self, item: &Item<'_>) -> FilterDecision {
        if self.purpose == Purpose::Restore && ALWAYS_RESTORED.contains(&item.group_resource) {
            return FilterDecision::Include;
        }
        self.check_exclusions(item).and(|| self.check_namespace_of(item)).and(|| self.check_labels_and_names(item))
    }

    /// Whether a backup includes an additional item of an action: labels are ignored, and a cluster-scoped object is included
    /// unless its resource is excluded explicitly.
    pub fn additional(&self, item: &Item<'_>) -> FilterDecision {
        let resource = || match item.namespace {
            _ if AUTO_EXCLUDED.contains(&item.group_resource) => FilterDecision::Exclude(ExclusionReason::Resource),
            None if item.group_resource == NAMESPACES => FilterDecision::Include,
            None => {
                exclude_if(self.resources.excludes_explicitly(item.group_resource, false), ExclusionReason::Resource)
            }
            Some(_) => self.resources.selects(item.group_resource, true),
        };
        let names = || exclude_if(self.filter_policies.excludes_name(item), ExclusionReason::FilterPolicy);
        self.check_exclusions(item).and(|| self.check_namespace_of(item)).and(resource).and(names)
    }

    /// Whether a restore includes an additional item of an action: labels, names and the default for cluster-scoped objects are
    /// ignored; excluded resources and namespaces are not.
    pub fn additional_to_restore(&self, item: &Item<'_>) -> FilterDecision {
        if ALWAYS_RESTORED.contains(&item.group_resource) {
            return FilterDecision::Include;
        }
        let non_restorable = NON_RESTORABLE_RESOURCES.contains(&item.group_resource);
        let resource = || match item.namespace {
            None => {
                exclude_if(self.resources.excludes_explicitly(item.group_resource, false), ExclusionReason::Resource)
            }
            Some(_) => self.resources.selects(item.group_resource, true),
        };
        exclude_if(non_restorable, ExclusionReason::NonRestorable).and(resource).and(|| self.check_namespace_of(item))
    }

    /// Whether a backup includes a Namespace object.
    pub fn namespace_object(&self, name: &str, labels: &dyn Labels, active: bool) -> NamespaceInclusion {
        if labels.get(EXCLUDE_LABEL) == Some("true") || !self.resource(NAMESPACES, false).is_included() {
            return NamespaceInclusion::Never;
        }
        if !active {
            return NamespaceInclusion::WithItems;
        }
        let selected_by_labels = self.selectors.as_ref().is_some_and(|any| any.iter().any(|s| s.matches(labels)));
        let whole_cluster_by_labels = self.every_namespace && self.selectors.is_some();
        if selected_by_labels || (!whole_cluster_by_labels && self.namespaces.includes(name)) {
            NamespaceInclusion::Always
        } else {
            NamespaceInclusion::WithItems
        }
    }

    /// Whether all namespaces are included.
    pub fn every_namespace(&self) -> bool {
        self.every_namespace
    }

    /// Whether there is a label selector; a LIST with a selector has no `remainingItemCount`.
    pub fn has_selector(&self) -> bool {
        self.selectors.is_some()
    }

    /// The namespaces to list one by one if only literal names are included; `None` means the whole cluster.
    pub fn named_namespaces(&self) -> Option<Vec<&str>> {
        let names: Vec<&str> = self.namespaces.includes.iter().collect();
        let literal = !names.is_empty() && !names.iter().any(|name| crate::glob::has_wildcard(name));
        literal.then(|| names.into_iter().filter(|name| self.namespaces.includes(name)).collect())
    }

    /// Objects backed up first within their resource.
    pub fn ordered(&self) -> &OrderedResources {
        &self.ordered
    }

    fn check_exclusions(&self, item: &Item<'_>) -> FilterDecision {
        match self.purpose {
            Purpose::Restore => FilterDecision::Include,
            Purpose::Backup => {
                exclude_if(item.labels.get(EXCLUDE_LABEL) == Some("true"), ExclusionReason::ExcludeLabel)
                    .and(|| exclude_if(item.deleting, ExclusionReason::Deleting))
            }
        }
    }

    fn check_namespace_of(&self, item: &Item<'_>) -> FilterDecision {
        match item.namespace {
            Some(namespace) => self.namespace(namespace),
            None if item.group_resource == NAMESPACES && self.purpose == Purpose::Restore => self.namespace(item.name),
            None => FilterDecision::Include,
        }
    }

    /// Labels and names: a filter policy for the kind replaces the selectors of the spec.
    fn check_labels_and_names(&self, item: &Item<'_>) -> FilterDecision {
        match self.filter_policies.decide(item) {
            Some(decision) => decision,
            None => exclude_if(!self.labels_match(item.labels), ExclusionReason::Labels),
        }
    }

    fn labels_match(&self, labels: &dyn Labels) -> bool {
        self.selectors.as_ref().is_none_or(|any| any.iter().any(|selector| selector.matches(labels)))
    }
}
