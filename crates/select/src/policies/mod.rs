//! Resource policies: what to do with volumes, and filters finer than those of a spec.
//!
//! They come as YAML in a ConfigMap. Unknown fields are errors: a policy that is misspelt must not quietly do nothing.

mod fine;
mod volume;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use fine::FineFilters;
use fine::{NamespacedFilterPolicy, ResourceFilterRule};
pub use volume::{Action, ActionKind, Volume};
use volume::{RawVolumePolicy, VolumePolicy};

use crate::Error;
use crate::resources::Lookup;

/// Resources to include and exclude, below the filters of the spec.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IncludeExclude {
    /// Resources without namespace.
    #[serde(rename = "includedClusterScopedResources")]
    pub included_cluster: Vec<String>,
    /// Resources without namespace.
    #[serde(rename = "excludedClusterScopedResources")]
    pub excluded_cluster: Vec<String>,
    /// Resources in namespaces.
    #[serde(rename = "includedNamespaceScopedResources")]
    pub included_namespaced: Vec<String>,
    /// Resources in namespaces.
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
    include_exclude_policy: Option<IncludeExclude>,
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

/// Policies that were read and found valid.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    volumes: Vec<VolumePolicy>,
    include_exclude: Option<IncludeExclude>,
    cluster_scoped: Option<Vec<ResourceFilterRule>>,
    namespaced: Vec<NamespacedFilterPolicy>,
}

impl Policies {
    /// Reads the data of a ConfigMap: one key, whatever its name.
    pub fn from_config_map(data: &BTreeMap<String, String>) -> Result<Self, Error> {
        match data.values().collect::<Vec<_>>().as_slice() {
            [text] => Self::parse(text),
            keys => Err(Error::Policies(format!("the ConfigMap must have exactly one key, it has {}", keys.len()))),
        }
    }

    /// Reads the document itself.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let document: Document = serde_saphyr::from_str(text).map_err(|error| Error::Policies(error.to_string()))?;
        if document.version != "v1" {
            return Err(Error::Policies(format!("version {:?} is not supported, only \"v1\" is", document.version)));
        }
        let volumes = document.volume_policies.unwrap_or_default();
        let policies = Self {
            volumes: volumes.into_iter().map(VolumePolicy::compile).collect::<Result<_, _>>()?,
            include_exclude: document.include_exclude_policy,
            cluster_scoped: document.cluster_scoped_filter_policy.map(|policy| policy.resource_filters),
            namespaced: document.namespaced_filter_policies.unwrap_or_default(),
        };
        policies.include_exclude.as_ref().map_or(Ok(()), check_include_exclude)?;
        fine::check(policies.cluster_scoped.as_deref(), &policies.namespaced)?;
        Ok(policies)
    }

    /// Refuses what means nothing in a restore.
    pub fn check_for_restore(&self) -> Result<(), Error> {
        let refuse = |what: &str| Err(Error::Policies(format!("{what} is not supported for restore")));
        match self {
            Self { volumes, .. } if !volumes.is_empty() => refuse("volumePolicies"),
            Self { include_exclude: Some(_), .. } => refuse("includeExcludePolicy"),
            _ => Ok(()),
        }
    }

    /// Puts the volume policies of the whole installation behind these: the first match wins, so a backup may differ.
    #[must_use]
    pub fn followed_by(mut self, global: &Self) -> Self {
        self.volumes.extend(global.volumes.iter().cloned());
        self
    }

    /// What to do with a volume: the action of the first policy all of whose conditions hold.
    pub fn action(&self, volume: &Volume) -> Option<&Action> {
        self.volumes.iter().find(|policy| policy.matches(volume)).map(|policy| &policy.action)
    }

    /// Whether there is any volume policy.
    pub fn has_volume_policies(&self) -> bool {
        !self.volumes.is_empty()
    }

    /// Whether there are filters by kind, which take the place of a spec's selectors.
    pub fn has_filters(&self) -> bool {
        self.cluster_scoped.is_some() || !self.namespaced.is_empty()
    }

    pub(crate) fn include_exclude(&self) -> Option<&IncludeExclude> {
        self.include_exclude.as_ref()
    }

    pub(crate) fn compile_filters(&self, lookup: &(impl Lookup + ?Sized)) -> Result<FineFilters, Error> {
        FineFilters::compile(self.cluster_scoped.as_deref(), &self.namespaced, lookup)
    }
}

fn check_include_exclude(policy: &IncludeExclude) -> Result<(), Error> {
    let pairs = [
        (&policy.included_cluster, &policy.excluded_cluster),
        (&policy.included_namespaced, &policy.excluded_namespaced),
    ];
    for (included, excluded) in pairs {
        if included.iter().chain(excluded).any(|name| name == "*") {
            return Err(Error::Policies("includeExcludePolicy cannot use '*'".to_owned()));
        }
        if let Some(name) = excluded.iter().find(|name| included.contains(name)) {
            return Err(Error::Policies(format!("includeExcludePolicy both includes and excludes {name}")));
        }
    }
    Ok(())
}
