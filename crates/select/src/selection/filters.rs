//! The filters of a spec, uncompiled.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::Error;
use crate::includes::{
    validate_includes_excludes, validate_namespace_includes_excludes, validate_scoped_includes_excludes,
};
use crate::labels::{LabelSelector, Selector};

/// What the filters are for: a restore interprets some of them differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A backup.
    Backup,
    /// A restore.
    Restore,
}

/// The filters of a Backup or Restore. Deserialized from the JSON of the spec; other fields are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Filters {
    /// Namespaces to include, as patterns; empty for all.
    #[serde(deserialize_with = "null_as_default")]
    pub included_namespaces: Vec<String>,
    /// Namespaces to exclude, as patterns.
    #[serde(deserialize_with = "null_as_default")]
    pub excluded_namespaces: Vec<String>,
    /// Resources of any scope to include; empty for all.
    #[serde(deserialize_with = "null_as_default")]
    pub included_resources: Vec<String>,
    /// Resources of any scope to exclude.
    #[serde(deserialize_with = "null_as_default")]
    pub excluded_resources: Vec<String>,
    /// Whether to include cluster-scoped objects; unset: only if all namespaces are included.
    pub include_cluster_resources: Option<bool>,
    /// Cluster-scoped resources to include.
    #[serde(deserialize_with = "null_as_default")]
    pub included_cluster_scoped_resources: Vec<String>,
    /// Cluster-scoped resources to exclude.
    #[serde(deserialize_with = "null_as_default")]
    pub excluded_cluster_scoped_resources: Vec<String>,
    /// Namespaced resources to include; empty for all.
    #[serde(deserialize_with = "null_as_default")]
    pub included_namespace_scoped_resources: Vec<String>,
    /// Namespaced resources to exclude.
    #[serde(deserialize_with = "null_as_default")]
    pub excluded_namespace_scoped_resources: Vec<String>,
    /// Selector that objects must match.
    pub label_selector: Option<LabelSelector>,
    /// Selectors of which objects must match one.
    #[serde(deserialize_with = "null_as_default")]
    pub or_label_selectors: Vec<LabelSelector>,
    /// Objects backed up first within their resource.
    #[serde(deserialize_with = "null_as_default")]
    pub ordered_resources: BTreeMap<String, String>,
}

impl Filters {
    /// Validates the filters; returns all errors with the names of the filters.
    pub fn validate(&self, purpose: Purpose) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        let mut add = |field, errors: Vec<String>| all.extend(errors.into_iter().map(|p| (field, p)));
        add(
            "included/excluded namespaces",
            validate_namespace_includes_excludes(&self.included_namespaces, &self.excluded_namespaces),
        );
        add(
            "included/excluded resources",
            validate_includes_excludes(&self.included_resources, &self.excluded_resources),
        );
        add(
            "included/excluded cluster-scoped resources",
            validate_scoped_includes_excludes(
                &self.included_cluster_scoped_resources,
                &self.excluded_cluster_scoped_resources,
            ),
        );
        add(
            "included/excluded namespace-scoped resources",
            validate_scoped_includes_excludes(
                &self.included_namespace_scoped_resources,
                &self.excluded_namespace_scoped_resources,
            ),
        );
        if purpose == Purpose::Backup && self.has_unscoped_filters() && self.has_scoped_filters() {
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
        all
    }

    pub(super) fn ensure_valid(&self, purpose: Purpose) -> Result<(), Error> {
        match self.validate(purpose).into_iter().next() {
            Some((field, problem)) => Err(Error::Filter { field, problem }),
            None => Ok(()),
        }
    }

    /// Whether an unscoped resource filter is set.
    pub fn has_unscoped_filters(&self) -> bool {
        self.include_cluster_resources.is_some()
            || !self.included_resources.is_empty()
            || !self.excluded_resources.is_empty()
    }

    fn has_scoped_filters(&self) -> bool {
        !self.included_cluster_scoped_resources.is_empty()
            || !self.excluded_cluster_scoped_resources.is_empty()
            || !self.included_namespace_scoped_resources.is_empty()
            || !self.excluded_namespace_scoped_resources.is_empty()
    }

    /// The compiled selectors, of which an object must match one; `None` if there is none.
    pub(super) fn selectors(&self) -> Result<Option<Vec<Selector>>, Error> {
        let all: Vec<&LabelSelector> = self.label_selector.iter().chain(&self.or_label_selectors).collect();
        let compiled = all.iter().map(|selector| Selector::new(selector)).collect::<Result<Vec<_>, _>>()?;
        Ok((!compiled.is_empty()).then_some(compiled))
    }
}

pub(super) fn qualified_object_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// Deserializes `null` as the default.
fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}
