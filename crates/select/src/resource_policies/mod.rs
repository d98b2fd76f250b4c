//! Resource policies: volume policies, include-exclude policy and filter policies.
//!
//! They are YAML in a ConfigMap. Unknown fields are errors: a misspelt policy must not be ignored silently.

mod filter_policy;
mod volume_policy;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use filter_policy::FilterPolicies;
use filter_policy::{NamespacedFilterPolicy, ResourceFilterRule};
use volume_policy::{RawVolumePolicy, VolumePolicy};
pub use volume_policy::{VolumeAction, VolumeActionType, VolumeProperties};

use crate::Error;
use crate::config_map::{require_version_1, single_document};
use crate::resources::ResourceMapper;

/// `includeExcludePolicy`: resources to include and exclude; the filters of the spec take precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IncludeExcludePolicy {
    /// Cluster-scoped resources to include.
    #[serde(rename = "includedClusterScopedResources")]
    pub included_cluster: Vec<String>,
    /// Cluster-scoped resources to exclude.
    #[serde(rename = "excludedClusterScopedResources")]
    pub excluded_cluster: Vec<String>,
    /// Namespaced resources to include.
    #[serde(rename = "includedNamespaceScopedResources")]
    pub included_namespaced: Vec<String>,
    /// Namespaced resources to exclude.
    #[serde(rename = "excludedNamespaceScopedResources")]
    pub excluded_namespaced: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[serde(default)]
    version: String,
    #[serde(default)]
    volume_policies: Option<Vec<RawVolumePolicy>>,
    #[serde(default)]
    include_exclude_policy: Option<IncludeExcludePolicy>,
    #[serde(default)]
    cluster_scoped_filter_policy: Option<ClusterScopedFilterPolicy>,
    #[serde(default)]
    namespaced_filter_policies: Option<Vec<NamespacedFilterPolicy>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClusterScopedFilterPolicy {
    #[serde(default)]
    resource_filters: Vec<ResourceFilterRule>,
}

/// Validated resource policies.
#[derive(Debug, Clone, Default)]
pub struct ResourcePolicies {
    volumes: Vec<VolumePolicy>,
    include_exclude: Option<IncludeExcludePolicy>,
    cluster_scoped: Option<Vec<ResourceFilterRule>>,
    namespaced: Vec<NamespacedFilterPolicy>,
}

impl ResourcePolicies {
    /// Parses the data of a ConfigMap, which must have exactly one key.
    pub fn from_config_map(data: &BTreeMap<String, String>) -> Result<Self, Error> {
        single_document(data).map_err(Error::ResourcePolicies).and_then(Self::parse)
    }

    /// Parses the YAML document.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let document: Document =
            serde_saphyr::from_str(text).map_err(|error| Error::ResourcePolicies(error.to_string()))?;
        require_version_1(&document.version).map_err(Error::ResourcePolicies)?;
        let volumes = document.volume_policies.unwrap_or_default();
        let policies = Self {
            volumes: volumes.into_iter().map(VolumePolicy::compile).collect::<Result<_, _>>()?,
            include_exclude: document.include_exclude_policy,
            cluster_scoped: document.cluster_scoped_filter_policy.map(|policy| policy.resource_filters),
            namespaced: document.namespaced_filter_policies.unwrap_or_default(),
        };
        policies.include_exclude.as_ref().map_or(Ok(()), validate_include_exclude)?;
        filter_policy::validate(policies.cluster_scoped.as_deref(), &policies.namespaced)?;
        Ok(policies)
    }

    /// Rejects policies that do not apply to restores.
    pub fn validate_for_restore(&self) -> Result<(), Error> {
        let unsupported = |what: &str| Err(Error::ResourcePolicies(format!("{what} is not supported for restore")));
        match self {
            Self { volumes, .. } if !volumes.is_empty() => unsupported("volumePolicies"),
            Self { include_exclude: Some(_), .. } => unsupported("includeExcludePolicy"),
            _ => Ok(()),
        }
    }

    /// Appends the volume policies of the server: the first match wins, so those of a backup take precedence.
    #[must_use]
    pub fn with_fallback(mut self, global: &Self) -> Self {
        self.volumes.extend(global.volumes.iter().cloned());
        self
    }

    /// The action of the first volume policy whose conditions all match.
    pub fn action(&self, volume: &VolumeProperties) -> Option<&VolumeAction> {
        self.volumes.iter().find(|policy| policy.matches(volume)).map(|policy| &policy.action)
    }

    /// Whether there is any volume policy.
    pub fn has_volume_policies(&self) -> bool {
        !self.volumes.is_empty()
    }

    /// Whether there are filter policies, which replace the label selectors of a spec.
    pub fn has_filters(&self) -> bool {
        self.cluster_scoped.is_some() || !self.namespaced.is_empty()
    }

    pub(crate) fn include_exclude(&self) -> Option<&IncludeExcludePolicy> {
        self.include_exclude.as_ref()
    }

    pub(crate) fn compile_filters(&self, mapper: &(impl ResourceMapper + ?Sized)) -> Result<FilterPolicies, Error> {
        FilterPolicies::compile(self.cluster_scoped.as_deref(), &self.namespaced, mapper)
    }
}

fn validate_include_exclude(policy: &IncludeExcludePolicy) -> Result<(), Error> {
    let pairs = [
        (&policy.included_cluster, &policy.excluded_cluster),
        (&policy.included_namespaced, &policy.excluded_namespaced),
    ];
    for (included, excluded) in pairs {
        if included.iter().chain(excluded).any(|name| name == "*") {
            return Err(Error::ResourcePolicies("includeExcludePolicy cannot use '*'".to_owned()));
        }
        if let Some(name) = excluded.iter().find(|name| included.contains(name)) {
            return Err(Error::ResourcePolicies(format!("includeExcludePolicy includes and excludes {name}")));
        }
    }
    Ok(())
}
