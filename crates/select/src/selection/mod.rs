//! What a spec selects, compiled once and asked for every item.

mod filters;
mod resource_filter;

use filters::text_of;
pub use filters::{Filters, Purpose};
use resource_filter::ResourceFilter;

use crate::Error;
use crate::includes::IncludesExcludes;
use crate::labels::{Labels, Selector};
use crate::order::{NON_RESTORABLE, OrderedResources};
use crate::policies::{FineFilters, Policies};
use crate::resources::Lookup;

/// Objects with this label, set to "true", are left out of every backup.
pub const EXCLUDE_LABEL: &str = "velero.io/exclude-from-backup";

/// Taken only as what a plugin asks for, never because they are there: they are made by the backup itself.
const AUTO_EXCLUDED: &[&str] =
    &["volumesnapshots.snapshot.storage.k8s.io", "volumesnapshotcontents.snapshot.storage.k8s.io"];

/// Restored whatever the filters say: other objects cannot do without.
const MUST_HAVE: &[&str] = &["datauploads.velero.io"];

const NAMESPACES: &str = "namespaces";

/// Whether something is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Include,
    /// It is not.
    Exclude(Why),
}

/// Why something is not in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// Its resource is filtered out.
    Resource,
    /// Its resource is never restored.
    NonRestorable,
    /// It has no namespace, and only what has one was asked for.
    ClusterScope,
    /// Its namespace is filtered out.
    Namespace,
    /// Its labels do not match.
    Labels,
    /// A filter policy does not list its kind or its name.
    FilterPolicy,
    /// It carries the label that leaves it out.
    ExcludeLabel,
    /// It is being deleted.
    Deleting,
}

impl Why {
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

impl Verdict {
    /// Whether it is in.
    pub fn is_included(self) -> bool {
        self == Self::Include
    }

    /// This, unless it is in: then the next.
    fn and(self, next: impl FnOnce() -> Self) -> Self {
        if self.is_included() { next() } else { self }
    }
}

fn unless(out: bool, why: Why) -> Verdict {
    if out { Verdict::Exclude(why) } else { Verdict::Include }
}

/// Whether the object of a namespace goes into a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracking {
    /// It does.
    Always,
    /// It does if anything in it does.
    WithItems,
    /// It does not.
    Never,
}

/// What the filters look at.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    /// `pods`, `deployments.apps`.
    pub group_resource: &'a str,
    /// `Pod`; empty if unknown. Only filter policies that name a kind no cluster knows look at it.
    pub kind: &'a str,
    /// None for what has no namespace.
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
        write!(f, "{} {}", self.group_resource, text_of(self.namespace, self.name))
    }
}

/// The filters of a spec, compiled: patterns, selectors, policies.
///
/// A resource is asked about once, with [`Selection::resource`]; each of its items with [`Selection::item`].
#[derive(Debug, Clone)]
pub struct Selection {
    purpose: Purpose,
    namespaces: IncludesExcludes,
    every_namespace: bool,
    resources: ResourceFilter,
    /// Any of them may match; none at all means no selector was given.
    selectors: Option<Vec<Selector>>,
    fine: FineFilters,
    ordered: OrderedResources,
}

impl Selection {
    /// Compiles the filters of a backup. `namespaces` are those of the cluster: patterns that match all of them mean
    /// the whole cluster, as no pattern does.
    pub fn for_backup(
        filters: &Filters,
        policies: Option<&Policies>,
        namespaces: &[String],
        lookup: &(impl Lookup + ?Sized),
    ) -> Result<Self, Error> {
        Self::compile(Purpose::Backup, filters, policies, namespaces, lookup)
    }

    /// Compiles the filters of a restore.
    pub fn for_restore(
        filters: &Filters,
        policies: Option<&Policies>,
        lookup: &(impl Lookup + ?Sized),
    ) -> Result<Self, Error> {
        Self::compile(Purpose::Restore, filters, policies, &[], lookup)
    }

    fn compile(
        purpose: Purpose,
        filters: &Filters,
        policies: Option<&Policies>,
        cluster: &[String],
        lookup: &(impl Lookup + ?Sized),
    ) -> Result<Self, Error> {
        filters.check(purpose)?;
        let namespaces = IncludesExcludes::new(&filters.included_namespaces, &filters.excluded_namespaces)?;
        let every_namespace = namespaces.everything_of(cluster);
        let include_exclude = policies.and_then(Policies::include_exclude);
        Ok(Self {
            purpose,
            every_namespace,
            resources: ResourceFilter::compile(purpose, filters, include_exclude, every_namespace, lookup)?,
            namespaces,
            selectors: filters.selectors()?,
            fine: policies.map_or_else(|| Ok(FineFilters::default()), |policies| policies.compile_filters(lookup))?,
            ordered: OrderedResources::new(&filters.ordered_resources),
        })
    }

    /// Whether items of a resource can be in at all.
    pub fn resource(&self, group_resource: &str, namespaced: bool) -> Verdict {
        match self.purpose {
            Purpose::Backup if AUTO_EXCLUDED.contains(&group_resource) => Verdict::Exclude(Why::Resource),
            Purpose::Restore if MUST_HAVE.contains(&group_resource) => Verdict::Include,
            Purpose::Restore if NON_RESTORABLE.contains(&group_resource) => Verdict::Exclude(Why::NonRestorable),
            _ => self.resources.collects(group_resource, namespaced),
        }
    }

    /// Whether objects in a namespace can be in at all.
    pub fn namespace(&self, name: &str) -> Verdict {
        unless(!self.namespaces.includes(name), Why::Namespace)
    }

    /// Whether an item of an included resource is in. The objects of namespaces have rules of their own in a backup:
    /// see [`Selection::namespace_object`].
    pub fn item(&self, item: &Item<'_>) -> Verdict {
        if self.purpose == Purpose::Restore && MUST_HAVE.contains(&item.group_resource) {
            return Verdict::Include;
        }
        self.skips(item).and(|| self.namespace_of(item)).and(|| self.finer(item))
    }

    /// Whether an item that an action asked for goes into a backup: labels do not matter, and an object without
    /// namespace is taken unless its resource was left out by name.
    pub fn additional(&self, item: &Item<'_>) -> Verdict {
        let resource = || match item.namespace {
            _ if AUTO_EXCLUDED.contains(&item.group_resource) => Verdict::Exclude(Why::Resource),
            None if item.group_resource == NAMESPACES => Verdict::Include,
            None => unless(self.resources.refuses(item.group_resource, false), Why::Resource),
            Some(_) => self.resources.collects(item.group_resource, true),
        };
        let names = || unless(self.fine.excludes_name(item), Why::FilterPolicy);
        self.skips(item).and(|| self.namespace_of(item)).and(resource).and(names)
    }

    /// Whether an item that an action asked for is restored: labels, names and the default about scope do not matter, what
    /// was left out by resource or namespace stays out.
    pub fn additional_to_restore(&self, item: &Item<'_>) -> Verdict {
        if MUST_HAVE.contains(&item.group_resource) {
            return Verdict::Include;
        }
        let never = NON_RESTORABLE.contains(&item.group_resource);
        let resource = || match item.namespace {
            None => unless(self.resources.refuses(item.group_resource, false), Why::Resource),
            Some(_) => self.resources.collects(item.group_resource, true),
        };
        unless(never, Why::NonRestorable).and(resource).and(|| self.namespace_of(item))
    }

    /// Whether the object of a namespace goes into a backup.
    pub fn namespace_object(&self, name: &str, labels: &dyn Labels, active: bool) -> Tracking {
        if labels.get(EXCLUDE_LABEL) == Some("true") || !self.resource(NAMESPACES, false).is_included() {
            return Tracking::Never;
        }
        if !active {
            return Tracking::WithItems;
        }
        let chosen_by_labels = self.selectors.as_ref().is_some_and(|any| any.iter().any(|s| s.matches(labels)));
        let whole_cluster_by_labels = self.every_namespace && self.selectors.is_some();
        if chosen_by_labels || (!whole_cluster_by_labels && self.namespaces.includes(name)) {
            Tracking::Always
        } else {
            Tracking::WithItems
        }
    }

    /// Whether the whole cluster is selected: no namespace is left out.
    pub fn every_namespace(&self) -> bool {
        self.every_namespace
    }

    /// Whether there is a label selector; a LIST with one does not tell how much remains.
    pub fn has_selector(&self) -> bool {
        self.selectors.is_some()
    }

    /// The namespaces to list one by one, if only literal names are included; None means the whole cluster.
    pub fn named_namespaces(&self) -> Option<Vec<&str>> {
        let names: Vec<&str> = self.namespaces.includes.iter().collect();
        let literal = !names.is_empty() && !names.iter().any(|name| crate::glob::has_wildcard(name));
        literal.then(|| names.into_iter().filter(|name| self.namespaces.includes(name)).collect())
    }

    /// Objects that come first within their resource.
    pub fn ordered(&self) -> &OrderedResources {
        &self.ordered
    }

    fn skips(&self, item: &Item<'_>) -> Verdict {
        match self.purpose {
            Purpose::Restore => Verdict::Include,
            Purpose::Backup => unless(item.labels.get(EXCLUDE_LABEL) == Some("true"), Why::ExcludeLabel)
                .and(|| unless(item.deleting, Why::Deleting)),
        }
    }

    fn namespace_of(&self, item: &Item<'_>) -> Verdict {
        match item.namespace {
            Some(namespace) => self.namespace(namespace),
            None if item.group_resource == NAMESPACES && self.purpose == Purpose::Restore => self.namespace(item.name),
            None => Verdict::Include,
        }
    }

    /// Labels and names: a filter policy for this kind takes the place of the spec's selectors.
    fn finer(&self, item: &Item<'_>) -> Verdict {
        match self.fine.decide(item) {
            Some(verdict) => verdict,
            None => unless(!self.labels_match(item.labels), Why::Labels),
        }
    }

    fn labels_match(&self, labels: &dyn Labels) -> bool {
        self.selectors.as_ref().is_none_or(|any| any.iter().any(|selector| selector.matches(labels)))
    }
}
