//! The filters of a spec, as they are written.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::Error;
use crate::includes::{check, check_namespaces, check_scoped};
use crate::labels::{LabelSelector, Selector};

/// What the filters are for: the same words mean a little less in a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A backup.
    Backup,
    /// A restore.
    Restore,
}

/// The filters of a Backup or Restore. Reads out of the spec's own JSON; other fields of it are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Filters {
    /// Patterns of namespaces; empty for all.
    #[serde(deserialize_with = "or_default")]
    pub included_namespaces: Vec<String>,
    /// Patterns of namespaces.
    #[serde(deserialize_with = "or_default")]
    pub excluded_namespaces: Vec<String>,
    /// Resources of any scope, old style; empty for all.
    #[serde(deserialize_with = "or_default")]
    pub included_resources: Vec<String>,
    /// Resources of any scope, old style.
    #[serde(deserialize_with = "or_default")]
    pub excluded_resources: Vec<String>,
    /// Objects without namespace, old style: yes, no, or only with the whole cluster.
    pub include_cluster_resources: Option<bool>,
    /// Resources without namespace.
    #[serde(deserialize_with = "or_default")]
    pub included_cluster_scoped_resources: Vec<String>,
    /// Resources without namespace.
    #[serde(deserialize_with = "or_default")]
    pub excluded_cluster_scoped_resources: Vec<String>,
    /// Resources in namespaces; empty for all.
    #[serde(deserialize_with = "or_default")]
    pub included_namespace_scoped_resources: Vec<String>,
    /// Resources in namespaces.
    #[serde(deserialize_with = "or_default")]
    pub excluded_namespace_scoped_resources: Vec<String>,
    /// Labels that objects must have.
    pub label_selector: Option<LabelSelector>,
    /// Selectors any of which may match.
    #[serde(deserialize_with = "or_default")]
    pub or_label_selectors: Vec<LabelSelector>,
    /// Objects that come first within their resource.
    #[serde(deserialize_with = "or_default")]
    pub ordered_resources: BTreeMap<String, String>,
}

impl Filters {
    /// Everything that is wrong, as a validation reports it.
    pub fn problems(&self, purpose: Purpose) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut add = |field, problems: Vec<String>| found.extend(problems.into_iter().map(|p| (field, p)));
        add("included/excluded namespaces", check_namespaces(&self.included_namespaces, &self.excluded_namespaces));
        add("included/excluded resources", check(&self.included_resources, &self.excluded_resources));
        add(
            "included/excluded cluster-scoped resources",
            check_scoped(&self.included_cluster_scoped_resources, &self.excluded_cluster_scoped_resources),
        );
        add(
            "included/excluded namespace-scoped resources",
            check_scoped(&self.included_namespace_scoped_resources, &self.excluded_namespace_scoped_resources),
        );
        if purpose == Purpose::Backup && self.is_old_style() && self.is_new_style() {
            let text = "included resources, excluded resources and include cluster resources cannot be used together \
                        with cluster-scoped and namespace-scoped filters";
            add("resource filters", vec![text.to_owned()]);
        }
        if self.label_selector.is_some() && !self.or_label_selectors.is_empty() {
            add("label selectors", vec!["labelSelector and orLabelSelectors cannot be used together".to_owned()]);
        }
        if let Err(error) = self.selectors() {
            add("label selectors", vec![error.to_string()]);
        }
        found
    }

    pub(super) fn check(&self, purpose: Purpose) -> Result<(), Error> {
        match self.problems(purpose).into_iter().next() {
            Some((field, problem)) => Err(Error::Filter { field, problem }),
            None => Ok(()),
        }
    }

    /// Whether any filter of the old style is used.
    pub fn is_old_style(&self) -> bool {
        self.include_cluster_resources.is_some()
            || !self.included_resources.is_empty()
            || !self.excluded_resources.is_empty()
    }

    fn is_new_style(&self) -> bool {
        !self.included_cluster_scoped_resources.is_empty()
            || !self.excluded_cluster_scoped_resources.is_empty()
            || !self.included_namespace_scoped_resources.is_empty()
            || !self.excluded_namespace_scoped_resources.is_empty()
    }

    /// The selectors, any of which may match; None if there is none.
    pub(super) fn selectors(&self) -> Result<Option<Vec<Selector>>, Error> {
        let all: Vec<&LabelSelector> = self.label_selector.iter().chain(&self.or_label_selectors).collect();
        let compiled = all.iter().map(|selector| Selector::new(selector)).collect::<Result<Vec<_>, _>>()?;
        Ok((!compiled.is_empty()).then_some(compiled))
    }
}

pub(super) fn text_of(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// `null` is another word for nothing.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}
