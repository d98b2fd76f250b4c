//! Filter policies: filters by kind for cluster-scoped objects and for the objects of some namespaces.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::Error;
use crate::glob::{Glob, has_wildcard};
use crate::includes::{IncludesExcludes, validate_namespace};
use crate::labels::{LabelSelector, Selector};
use crate::resources::ResourceMapper;
use crate::selection::{ExclusionReason, FilterDecision, Item};

/// `resourceFilters[]`: which objects of some kinds are included.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ResourceFilterRule {
    kinds: Vec<String>,
    label_selector: Option<LabelSelector>,
    or_label_selectors: Vec<LabelSelector>,
    names: Vec<String>,
    excluded_names: Vec<String>,
}

/// `namespacedFilterPolicies[]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct NamespacedFilterPolicy {
    namespaces: Vec<String>,
    resource_filters: Vec<ResourceFilterRule>,
}

impl ResourceFilterRule {
    fn is_catch_all(&self) -> bool {
        self.kinds.is_empty() || self.kinds == ["*"]
    }
}

/// Compiled filter policies.
#[derive(Debug, Clone, Default)]
pub struct FilterPolicies {
    cluster: BTreeMap<String, KindFilter>,
    namespaced: Vec<NamespaceFilter>,
}

#[derive(Debug, Clone)]
struct NamespaceFilter {
    patterns: Vec<(String, Glob)>,
    kinds: BTreeMap<String, KindFilter>,
    catch_all: Option<KindFilter>,
}

#[derive(Debug, Clone)]
struct KindFilter {
    selector: Option<Selector>,
    any_selector: Vec<Selector>,
    names: IncludesExcludes,
}

impl FilterPolicies {
    pub(super) fn compile(
        cluster: Option<&[ResourceFilterRule]>,
        namespaced: &[NamespacedFilterPolicy],
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Result<Self, Error> {
        let namespaced = namespaced.iter().map(|policy| NamespaceFilter::compile(policy, mapper));
        Ok(Self {
            cluster: compile_by_kind(cluster.unwrap_or_default(), mapper)?,
            namespaced: namespaced.collect::<Result<_, _>>()?,
        })
    }

    /// The decision of the policy that covers the item; `None` if no policy does and the selectors of the spec apply.
    pub(crate) fn decide(&self, item: &Item<'_>) -> Option<FilterDecision> {
        let filter = match item.namespace {
            Some(namespace) => {
                let policy = self.policy_for(namespace)?;
                let filter = find_by_kind(&policy.kinds, item).or(policy.catch_all.as_ref());
                let Some(filter) = filter else { return Some(FilterDecision::Exclude(ExclusionReason::FilterPolicy)) };
                filter
            }
            None => find_by_kind(&self.cluster, item)?,
        };
        Some(filter.decide(item))
    }

    /// Whether a policy excludes the item by name. A kind that no filter lists is not excluded here.
    pub(crate) fn excludes_name(&self, item: &Item<'_>) -> bool {
        let filter = match item.namespace {
            Some(namespace) => self
                .policy_for(namespace)
                .and_then(|policy| find_by_kind(&policy.kinds, item).or(policy.catch_all.as_ref())),
            None => find_by_kind(&self.cluster, item),
        };
        filter.is_some_and(|filter| !filter.names.includes(item.name))
    }

    /// The policy for a namespace: a literal name takes precedence over patterns, then the first match wins.
    fn policy_for(&self, namespace: &str) -> Option<&NamespaceFilter> {
        let by_name = |policy: &&NamespaceFilter| policy.patterns.iter().any(|(name, _)| name == namespace);
        let by_pattern = |policy: &&NamespaceFilter| {
            policy.patterns.iter().any(|(name, glob)| has_wildcard(name) && glob.matches(namespace))
        };
        self.namespaced.iter().find(by_name).or_else(|| self.namespaced.iter().find(by_pattern))
    }
}

impl NamespaceFilter {
    fn compile(policy: &NamespacedFilterPolicy, mapper: &(impl ResourceMapper + ?Sized)) -> Result<Self, Error> {
        let pattern = |name: &String| Ok((name.clone(), Glob::new(name)?));
        let (catch_all, kinds): (Vec<_>, Vec<_>) =
            policy.resource_filters.iter().cloned().partition(ResourceFilterRule::is_catch_all);
        Ok(Self {
            patterns: policy.namespaces.iter().map(pattern).collect::<Result<_, Error>>()?,
            kinds: compile_by_kind(&kinds, mapper)?,
            catch_all: catch_all.first().map(KindFilter::compile).transpose()?,
        })
    }
}

impl KindFilter {
    fn compile(rule: &ResourceFilterRule) -> Result<Self, Error> {
        let present = |selector: &&LabelSelector| !selector.is_empty();
        Ok(Self {
            selector: rule.label_selector.as_ref().filter(present).map(Selector::new).transpose()?,
            any_selector: rule
                .or_label_selectors
                .iter()
                .filter(present)
                .map(Selector::new)
                .collect::<Result<_, _>>()?,
            names: IncludesExcludes::new(&rule.names, &rule.excluded_names)?,
        })
    }

    fn decide(&self, item: &Item<'_>) -> FilterDecision {
        let one = self.selector.as_ref().is_none_or(|selector| selector.matches(item.labels));
        let any = self.any_selector.is_empty() || self.any_selector.iter().any(|s| s.matches(item.labels));
        if !one || !any {
            FilterDecision::Exclude(ExclusionReason::Labels)
        } else if !self.names.includes(item.name) {
            FilterDecision::Exclude(ExclusionReason::FilterPolicy)
        } else {
            FilterDecision::Include
        }
    }
}

/// Filters by group-resource; an unknown kind is kept as written.
fn compile_by_kind(
    rules: &[ResourceFilterRule],
    mapper: &(impl ResourceMapper + ?Sized),
) -> Result<BTreeMap<String, KindFilter>, Error> {
    let mut filters = BTreeMap::new();
    for rule in rules {
        let filter = KindFilter::compile(rule)?;
        for kind in &rule.kinds {
            let resource = mapper.resolve(kind).map_or_else(|| kind.clone(), |found| found.group_resource);
            filters.insert(resource, filter.clone());
        }
    }
    Ok(filters)
}

fn find_by_kind<'a>(filters: &'a BTreeMap<String, KindFilter>, item: &Item<'_>) -> Option<&'a KindFilter> {
    let by_kind = || filters.iter().find(|(name, _)| name.eq_ignore_ascii_case(item.kind)).map(|(_, filter)| filter);
    filters.get(item.group_resource).or_else(by_kind)
}

/// Validates the filter policies.
pub(super) fn validate(
    cluster: Option<&[ResourceFilterRule]>,
    namespaced: &[NamespacedFilterPolicy],
) -> Result<(), Error> {
    let invalid = |path: &str, problem: &str| Err(Error::ResourcePolicies(format!("{path}: {problem}")));
    if let Some(rules) = cluster {
        let path = "clusterScopedFilterPolicy";
        if rules.is_empty() {
            return invalid(path, "resourceFilters cannot be empty");
        }
        if rules.iter().any(ResourceFilterRule::is_catch_all) {
            return invalid(path, "kinds must be specified");
        }
        validate_rules(path, rules)?;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, policy) in namespaced.iter().enumerate() {
        let path = format!("namespacedFilterPolicies[{index}]");
        if policy.namespaces.is_empty() || policy.resource_filters.is_empty() {
            return invalid(&path, "at least one namespace and one resourceFilter must be specified");
        }
        for name in &policy.namespaces {
            validate_namespace(name).map_err(|problem| Error::ResourcePolicies(format!("{path}: {problem}")))?;
            if seen.contains(&name.as_str()) {
                return invalid(&path, &format!("namespace pattern {name:?} is duplicated"));
            }
            seen.push(name);
        }
        if policy.resource_filters.iter().filter(|rule| rule.is_catch_all()).count() > 1 {
            return invalid(&path, "only one catch-all resource filter is allowed");
        }
        validate_rules(&path, &policy.resource_filters)?;
    }
    Ok(())
}

fn validate_rules(path: &str, rules: &[ResourceFilterRule]) -> Result<(), Error> {
    let invalid = |problem: String| Err(Error::ResourcePolicies(format!("{path}: {problem}")));
    let mut seen: Vec<&str> = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        if rule.is_catch_all() && !(rule.names.is_empty() && rule.excluded_names.is_empty()) {
            return invalid(format!("resourceFilters[{index}] is a catch-all and cannot have names"));
        }
        if rule.label_selector.as_ref().is_some_and(|s| !s.is_empty()) && !rule.or_label_selectors.is_empty() {
            return invalid(format!("resourceFilters[{index}] has both labelSelector and orLabelSelectors"));
        }
        for kind in rule.kinds.iter().filter(|kind| *kind != "*") {
            if seen.contains(&kind.as_str()) {
                return invalid(format!("kind {kind:?} is duplicated"));
            }
            seen.push(kind);
        }
        if let Err(error) = KindFilter::compile(rule) {
            return invalid(format!("resourceFilters[{index}]: {error}"));
        }
    }
    Ok(())
}
