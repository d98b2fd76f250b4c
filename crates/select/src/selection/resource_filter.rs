//! Resource filters: unscoped, or one for each scope.

use super::{ExclusionReason, FilterDecision, Filters, NAMESPACES, Purpose, exclude_if};
use crate::Error;
use crate::includes::{Globs, IncludesExcludes};
use crate::resource_policies::IncludeExcludePolicy;
use crate::resources::ResourceMapper;

/// A compiled filter for resources.
#[derive(Debug, Clone)]
pub(super) enum ResourceFilter {
    /// One filter for all resources and a switch for cluster-scoped ones.
    Unscoped { filter: IncludesExcludes, cluster: Option<bool>, every_namespace: bool, purpose: Purpose },
    /// One filter for each scope. `whole_cluster` is set if there are no filters.
    Scoped { namespaced: IncludesExcludes, cluster: IncludesExcludes, whole_cluster: bool },
}

impl ResourceFilter {
    pub(super) fn compile(
        purpose: Purpose,
        filters: &Filters,
        policy: Option<&IncludeExcludePolicy>,
        every_namespace: bool,
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Result<Self, Error> {
        if purpose == Purpose::Restore || filters.has_unscoped_filters() {
            return Self::unscoped(purpose, filters, every_namespace, mapper);
        }
        let list = |names: &[String], namespaced| compile_scoped(names, namespaced, mapper);
        let mut namespaced = IncludesExcludes {
            includes: list(&filters.included_namespace_scoped_resources, true)?,
            excludes: list(&filters.excluded_namespace_scoped_resources, true)?,
        };
        let mut cluster = IncludesExcludes {
            includes: list(&filters.included_cluster_scoped_resources, false)?,
            excludes: list(&filters.excluded_cluster_scoped_resources, false)?,
        };
        if let Some(policy) = policy {
            merge_policy(&mut namespaced, &policy.included_namespaced, &policy.excluded_namespaced, true, mapper)?;
            merge_policy(&mut cluster, &policy.included_cluster, &policy.excluded_cluster, false, mapper)?;
        }
        let no_cluster_filters = cluster.includes.is_empty() && cluster.excludes.is_empty();
        let whole_cluster = no_cluster_filters && every_namespace && namespaced.includes_everything();
        Ok(Self::Scoped { namespaced, cluster, whole_cluster })
    }

    fn unscoped(
        purpose: Purpose,
        filters: &Filters,
        every_namespace: bool,
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Result<Self, Error> {
        // Unknown resources are kept: dropping them could leave an empty list, which means everything.
        let resolve = |name: &String| mapper.resolve(name).map_or_else(|| name.clone(), |found| found.group_resource);
        let all = |names: &[String]| Globs::new(names.iter().map(resolve));
        let filter = IncludesExcludes {
            includes: all(&filters.included_resources)?,
            excludes: all(&filters.excluded_resources)?,
        };
        Ok(Self::Unscoped { filter, cluster: filters.include_cluster_resources, every_namespace, purpose })
    }

    /// Whether the filters select a resource.
    pub(super) fn selects(&self, group_resource: &str, namespaced: bool) -> FilterDecision {
        match self {
            Self::Unscoped { filter, cluster, every_namespace, purpose } => {
                // A backup decides about Namespace objects one by one.
                let one_by_one = *purpose == Purpose::Backup && group_resource == NAMESPACES;
                let scope_excluded = match cluster {
                    Some(included) => !included,
                    None => !every_namespace && !one_by_one,
                };
                exclude_if(!namespaced && scope_excluded, ExclusionReason::ClusterScope)
                    .and(|| exclude_if(!filter.includes(group_resource), ExclusionReason::Resource))
            }
            Self::Scoped { namespaced: filter, .. } if namespaced => {
                exclude_if(!filter.includes(group_resource), ExclusionReason::Resource)
            }
            Self::Scoped { cluster, .. } if cluster.excludes.matches(group_resource) => {
                FilterDecision::Exclude(ExclusionReason::Resource)
            }
            Self::Scoped { cluster, whole_cluster, .. } => {
                let named = cluster.includes.matches(group_resource) || group_resource == NAMESPACES;
                exclude_if(!whole_cluster && !named, ExclusionReason::ClusterScope)
            }
        }
    }

    /// Whether a resource is excluded even as an additional item.
    pub(super) fn excludes_explicitly(&self, group_resource: &str, namespaced: bool) -> bool {
        match self {
            Self::Unscoped { filter, cluster, .. } => {
                let scope_excluded = match cluster {
                    Some(included) => !included,
                    None => !filter.includes(group_resource),
                };
                filter.excludes.matches(group_resource) || (!namespaced && scope_excluded)
            }
            Self::Scoped { namespaced: filter, .. } if namespaced => filter.excludes.matches(group_resource),
            Self::Scoped { cluster, .. } => cluster.excludes.matches(group_resource),
        }
    }
}

/// Resolves names; those of the other scope are dropped.
fn compile_scoped(names: &[String], namespaced: bool, mapper: &(impl ResourceMapper + ?Sized)) -> Result<Globs, Error> {
    Globs::new(names.iter().filter_map(|name| resolve_scoped(name, namespaced, mapper)))
}

fn resolve_scoped(name: &str, namespaced: bool, mapper: &(impl ResourceMapper + ?Sized)) -> Option<String> {
    match mapper.resolve(name) {
        _ if name == "*" => Some(name.to_owned()),
        None => Some(name.to_owned()),
        Some(found) => (found.namespaced == namespaced).then_some(found.group_resource),
    }
}

/// Adds the lists of a policy to those of the spec, which take precedence.
fn merge_policy(
    filter: &mut IncludesExcludes,
    included: &[String],
    excluded: &[String],
    namespaced: bool,
    mapper: &(impl ResourceMapper + ?Sized),
) -> Result<(), Error> {
    let listed = |filter: &IncludesExcludes, name: &str| filter.includes.matches(name) || filter.excludes.matches(name);
    for name in excluded.iter().filter_map(|name| resolve_scoped(name, namespaced, mapper)) {
        if !listed(filter, &name) {
            filter.excludes.push(&name)?;
        }
    }
    for name in included.iter().filter_map(|name| resolve_scoped(name, namespaced, mapper)) {
        if !listed(filter, &name) {
            filter.includes.push(&name)?;
        }
    }
    Ok(())
}
