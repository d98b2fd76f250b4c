//! Which resources are in: the old style, and the one by scope.

use super::{Filters, NAMESPACES, Purpose, Verdict, Why, unless};
use crate::Error;
use crate::includes::{Globs, IncludesExcludes};
use crate::policies::IncludeExclude;
use crate::resources::Lookup;

/// A compiled filter for resources.
#[derive(Debug, Clone)]
pub(super) enum ResourceFilter {
    /// One list for all, and a switch for what has no namespace.
    Global { filter: IncludesExcludes, cluster: Option<bool>, every_namespace: bool, purpose: Purpose },
    /// A list for each scope. `whole_cluster` is set when nothing at all was filtered.
    Scoped { namespaced: IncludesExcludes, cluster: IncludesExcludes, whole_cluster: bool },
}

impl ResourceFilter {
    pub(super) fn compile(
        purpose: Purpose,
        filters: &Filters,
        policy: Option<&IncludeExclude>,
        every_namespace: bool,
        lookup: &(impl Lookup + ?Sized),
    ) -> Result<Self, Error> {
        if purpose == Purpose::Restore || filters.is_old_style() {
            return Self::global(purpose, filters, every_namespace, lookup);
        }
        let list = |names: &[String], namespaced| scoped(names, namespaced, lookup);
        let mut namespaced = IncludesExcludes {
            includes: list(&filters.included_namespace_scoped_resources, true)?,
            excludes: list(&filters.excluded_namespace_scoped_resources, true)?,
        };
        let mut cluster = IncludesExcludes {
            includes: list(&filters.included_cluster_scoped_resources, false)?,
            excludes: list(&filters.excluded_cluster_scoped_resources, false)?,
        };
        if let Some(policy) = policy {
            combine(&mut namespaced, &policy.included_namespaced, &policy.excluded_namespaced, true, lookup)?;
            combine(&mut cluster, &policy.included_cluster, &policy.excluded_cluster, false, lookup)?;
        }
        let untouched = cluster.includes.is_empty() && cluster.excludes.is_empty();
        let whole_cluster = untouched && every_namespace && namespaced.everything();
        Ok(Self::Scoped { namespaced, cluster, whole_cluster })
    }

    fn global(
        purpose: Purpose,
        filters: &Filters,
        every_namespace: bool,
        lookup: &(impl Lookup + ?Sized),
    ) -> Result<Self, Error> {
        // What the cluster does not know stays as it is: dropping it could leave an empty list, which means everything.
        let resolve = |name: &String| lookup.resolve(name).map_or_else(|| name.clone(), |found| found.group_resource);
        let all = |names: &[String]| Globs::new(names.iter().map(resolve));
        let filter = IncludesExcludes {
            includes: all(&filters.included_resources)?,
            excludes: all(&filters.excluded_resources)?,
        };
        Ok(Self::Global { filter, cluster: filters.include_cluster_resources, every_namespace, purpose })
    }

    /// Whether a resource is read because it is there.
    pub(super) fn collects(&self, group_resource: &str, namespaced: bool) -> Verdict {
        match self {
            Self::Global { filter, cluster, every_namespace, purpose } => {
                // A backup decides about the objects of namespaces one by one.
                let one_by_one = *purpose == Purpose::Backup && group_resource == NAMESPACES;
                let scope_out = match cluster {
                    Some(included) => !included,
                    None => !every_namespace && !one_by_one,
                };
                unless(!namespaced && scope_out, Why::ClusterScope)
                    .and(|| unless(!filter.includes(group_resource), Why::Resource))
            }
            Self::Scoped { namespaced: filter, .. } if namespaced => {
                unless(!filter.includes(group_resource), Why::Resource)
            }
            Self::Scoped { cluster, .. } if cluster.excludes.matches(group_resource) => Verdict::Exclude(Why::Resource),
            Self::Scoped { cluster, whole_cluster, .. } => {
                let named = cluster.includes.matches(group_resource) || group_resource == NAMESPACES;
                unless(!whole_cluster && !named, Why::ClusterScope)
            }
        }
    }

    /// Whether a resource is out even if somebody asks for it.
    pub(super) fn refuses(&self, group_resource: &str, namespaced: bool) -> bool {
        match self {
            Self::Global { filter, cluster, .. } => {
                let scope_out = match cluster {
                    Some(included) => !included,
                    None => !filter.includes(group_resource),
                };
                filter.excludes.matches(group_resource) || (!namespaced && scope_out)
            }
            Self::Scoped { namespaced: filter, .. } if namespaced => filter.excludes.matches(group_resource),
            Self::Scoped { cluster, .. } => cluster.excludes.matches(group_resource),
        }
    }
}

/// Names resolved; those of the other scope are dropped.
fn scoped(names: &[String], namespaced: bool, lookup: &(impl Lookup + ?Sized)) -> Result<Globs, Error> {
    Globs::new(names.iter().filter_map(|name| resolve_scoped(name, namespaced, lookup)))
}

fn resolve_scoped(name: &str, namespaced: bool, lookup: &(impl Lookup + ?Sized)) -> Option<String> {
    match lookup.resolve(name) {
        _ if name == "*" => Some(name.to_owned()),
        None => Some(name.to_owned()),
        Some(found) => (found.namespaced == namespaced).then_some(found.group_resource),
    }
}

/// Adds a policy's lists to those of the spec, which win.
fn combine(
    filter: &mut IncludesExcludes,
    included: &[String],
    excluded: &[String],
    namespaced: bool,
    lookup: &(impl Lookup + ?Sized),
) -> Result<(), Error> {
    let known = |filter: &IncludesExcludes, name: &str| filter.includes.matches(name) || filter.excludes.matches(name);
    for name in excluded.iter().filter_map(|name| resolve_scoped(name, namespaced, lookup)) {
        if !known(filter, &name) {
            filter.excludes.push(&name)?;
        }
    }
    for name in included.iter().filter_map(|name| resolve_scoped(name, namespaced, lookup)) {
        if !known(filter, &name) {
            filter.includes.push(&name)?;
        }
    }
    Ok(())
}
