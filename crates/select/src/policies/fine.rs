//! Filters by kind: for what has no namespace, and for the objects of some namespaces.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::Error;
use crate::glob::{Glob, has_wildcard};
use crate::includes::{IncludesExcludes, check_namespace};
use crate::labels::{LabelSelector, Selector};
use crate::resources::Lookup;
use crate::selection::{Item, Verdict, Why};

/// What of some kinds is in.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ResourceFilterRule {
    kinds: Vec<String>,
    label_selector: Option<LabelSelector>,
    or_label_selectors: Vec<LabelSelector>,
    names: Vec<String>,
    excluded_names: Vec<String>,
}

/// What is in, in some namespaces.
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

/// Compiled filters by kind.
#[derive(Debug, Clone, Default)]
pub struct FineFilters {
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

impl FineFilters {
    pub(super) fn compile(
        cluster: Option<&[ResourceFilterRule]>,
        namespaced: &[NamespacedFilterPolicy],
        lookup: &(impl Lookup + ?Sized),
    ) -> Result<Self, Error> {
        let namespaced = namespaced.iter().map(|policy| NamespaceFilter::compile(policy, lookup));
        Ok(Self {
            cluster: by_kind(cluster.unwrap_or_default(), lookup)?,
            namespaced: namespaced.collect::<Result<_, _>>()?,
        })
    }

    /// The verdict of a policy that covers the item; None leaves it to the spec's own selectors.
    pub(crate) fn decide(&self, item: &Item<'_>) -> Option<Verdict> {
        let filter = match item.namespace {
            Some(namespace) => {
                let policy = self.policy_for(namespace)?;
                let filter = lookup_kind(&policy.kinds, item).or(policy.catch_all.as_ref());
                let Some(filter) = filter else { return Some(Verdict::Exclude(Why::FilterPolicy)) };
                filter
            }
            None => lookup_kind(&self.cluster, item)?,
        };
        Some(filter.decide(item))
    }

    /// Whether a policy leaves the item out by its name. A kind that is not listed passes here.
    pub(crate) fn excludes_name(&self, item: &Item<'_>) -> bool {
        let filter = match item.namespace {
            Some(namespace) => self
                .policy_for(namespace)
                .and_then(|policy| lookup_kind(&policy.kinds, item).or(policy.catch_all.as_ref())),
            None => lookup_kind(&self.cluster, item),
        };
        filter.is_some_and(|filter| !filter.names.includes(item.name))
    }

    /// A literal name goes before patterns; among those the first one wins.
    fn policy_for(&self, namespace: &str) -> Option<&NamespaceFilter> {
        let literally = |policy: &&NamespaceFilter| policy.patterns.iter().any(|(name, _)| name == namespace);
        let by_pattern = |policy: &&NamespaceFilter| {
            policy.patterns.iter().any(|(name, glob)| has_wildcard(name) && glob.matches(namespace))
        };
        self.namespaced.iter().find(literally).or_else(|| self.namespaced.iter().find(by_pattern))
    }
}

impl NamespaceFilter {
    fn compile(policy: &NamespacedFilterPolicy, lookup: &(impl Lookup + ?Sized)) -> Result<Self, Error> {
        let pattern = |name: &String| Ok((name.clone(), Glob::new(name)?));
        let (catch_all, kinds): (Vec<_>, Vec<_>) =
            policy.resource_filters.iter().cloned().partition(ResourceFilterRule::is_catch_all);
        Ok(Self {
            patterns: policy.namespaces.iter().map(pattern).collect::<Result<_, Error>>()?,
            kinds: by_kind(&kinds, lookup)?,
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

    fn decide(&self, item: &Item<'_>) -> Verdict {
        let one = self.selector.as_ref().is_none_or(|selector| selector.matches(item.labels));
        let any = self.any_selector.is_empty() || self.any_selector.iter().any(|s| s.matches(item.labels));
        if !one || !any {
            Verdict::Exclude(Why::Labels)
        } else if !self.names.includes(item.name) {
            Verdict::Exclude(Why::FilterPolicy)
        } else {
            Verdict::Include
        }
    }
}

/// Filters by group-resource; a kind that the cluster does not know stays as it was written.
fn by_kind(
    rules: &[ResourceFilterRule],
    lookup: &(impl Lookup + ?Sized),
) -> Result<BTreeMap<String, KindFilter>, Error> {
    let mut filters = BTreeMap::new();
    for rule in rules {
        let filter = KindFilter::compile(rule)?;
        for kind in &rule.kinds {
            let resource = lookup.resolve(kind).map_or_else(|| kind.clone(), |found| found.group_resource);
            filters.insert(resource, filter.clone());
        }
    }
    Ok(filters)
}

fn lookup_kind<'a>(filters: &'a BTreeMap<String, KindFilter>, item: &Item<'_>) -> Option<&'a KindFilter> {
    let by_kind = || filters.iter().find(|(name, _)| name.eq_ignore_ascii_case(item.kind)).map(|(_, filter)| filter);
    filters.get(item.group_resource).or_else(by_kind)
}

/// What is wrong with the filters, if anything is.
pub(super) fn check(
    cluster: Option<&[ResourceFilterRule]>,
    namespaced: &[NamespacedFilterPolicy],
) -> Result<(), Error> {
    let bad = |place: &str, problem: &str| Err(Error::Policies(format!("{place}: {problem}")));
    if let Some(rules) = cluster {
        let place = "clusterScopedFilterPolicy";
        if rules.is_empty() {
            return bad(place, "resourceFilters cannot be empty");
        }
        if rules.iter().any(ResourceFilterRule::is_catch_all) {
            return bad(place, "kinds must be specified");
        }
        check_rules(place, rules)?;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, policy) in namespaced.iter().enumerate() {
        let place = format!("namespacedFilterPolicies[{index}]");
        if policy.namespaces.is_empty() || policy.resource_filters.is_empty() {
            return bad(&place, "at least one namespace and one resourceFilter must be specified");
        }
        for name in &policy.namespaces {
            check_namespace(name).map_err(|problem| Error::Policies(format!("{place}: {problem}")))?;
            if seen.contains(&name.as_str()) {
                return bad(&place, &format!("namespace pattern {name:?} appears twice"));
            }
            seen.push(name);
        }
        if policy.resource_filters.iter().filter(|rule| rule.is_catch_all()).count() > 1 {
            return bad(&place, "only one catch-all resource filter is allowed");
        }
        check_rules(&place, &policy.resource_filters)?;
    }
    Ok(())
}

fn check_rules(place: &str, rules: &[ResourceFilterRule]) -> Result<(), Error> {
    let bad = |problem: String| Err(Error::Policies(format!("{place}: {problem}")));
    let mut seen: Vec<&str> = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        if rule.is_catch_all() && !(rule.names.is_empty() && rule.excluded_names.is_empty()) {
            return bad(format!("resourceFilters[{index}] is a catch-all and cannot have names"));
        }
        if rule.label_selector.as_ref().is_some_and(|s| !s.is_empty()) && !rule.or_label_selectors.is_empty() {
            return bad(format!("resourceFilters[{index}] has both labelSelector and orLabelSelectors"));
        }
        for kind in rule.kinds.iter().filter(|kind| *kind != "*") {
            if seen.contains(&kind.as_str()) {
                return bad(format!("kind {kind:?} appears twice"));
            }
            seen.push(kind);
        }
        if let Err(error) = KindFilter::compile(rule) {
            return bad(format!("resourceFilters[{index}]: {error}"));
        }
    }
    Ok(())
}
