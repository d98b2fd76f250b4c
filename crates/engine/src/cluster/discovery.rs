//! Discovery of the resources that can be backed up.

use std::collections::HashSet;

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource, APIResourceList};
use plimsoll_select::resource_order::COHABITATING_RESOURCES;

use super::{Cluster, Resource};
use crate::Error;

/// The result of API discovery.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// Resources that can be listed, read, created and deleted, each in one version.
    pub resources: Vec<Resource>,
    /// Group versions that are unavailable, with the error: usually an aggregated API without a running backend.
    pub unavailable: Vec<(String, String)>,
}

impl Discovery {
    /// Adds the resources that no earlier version has.
    fn add(&mut self, resources: Vec<Resource>) {
        let known: HashSet<String> = self.resources.iter().map(Resource::group_resource).collect();
        self.resources.extend(resources.into_iter().filter(|one| !known.contains(&one.group_resource())));
    }
}

impl Cluster {
    /// Discovers the resources that can be backed up, each in the preferred version of its group or in the first that has it.
    pub async fn discover(&self) -> Result<Discovery, Error> {
        let groups = self.client.list_api_groups().await.map_err(|e| Error::api("list API groups", e))?;
        let mut versions: Vec<String> = vec!["v1".into()];
        versions.extend(groups.groups.iter().flat_map(versions_of));
        let answers: Vec<_> = stream::iter(versions)
            .map(|version| async move { (version.clone(), self.list_resources(&version).await) })
            .buffered(8)
            .collect()
            .await;
        let mut found = Discovery::default();
        for (version, answer) in answers {
            match answer {
                Ok(resources) => found.add(resources),
                Err(error) if version == "v1" => return Err(error),
                // Deleted since the groups were listed.
                Err(error) if error.code() == Some(404) => {}
                Err(error) => found.unavailable.push((version, error.to_string())),
            }
        }
        drop_cohabitating(&mut found.resources);
        Ok(found)
    }

    async fn list_resources(&self, api_version: &str) -> Result<Vec<Resource>, Error> {
        let list: APIResourceList = if api_version == "v1" {
            self.client.list_core_api_resources("v1").await
        } else {
            self.client.list_api_group_resources(api_version).await
        }
        .map_err(|e| Error::api(format!("discover API {api_version}"), e))?;
        Ok(list.resources.into_iter().filter(supports_backup).map(|r| to_resource(api_version, r)).collect())
    }
}

/// The versions of a group, the preferred one first.
fn versions_of(group: &APIGroup) -> Vec<String> {
    let preferred = group.preferred_version.iter().chain(&group.versions).map(|version| version.group_version.clone());
    let mut seen = HashSet::new();
    preferred.filter(|version| seen.insert(version.clone())).collect()
}

fn supports_backup(resource: &APIResource) -> bool {
    let verbs = ["list", "create", "get", "delete"];
    !resource.name.contains('/') && verbs.iter().all(|verb| resource.verbs.iter().any(|v| v == verb))
}

fn to_resource(api_version: &str, resource: APIResource) -> Resource {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let mut aliases = resource.short_names.unwrap_or_default();
    aliases.extend((!resource.singular_name.is_empty()).then_some(resource.singular_name));
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: resource.name,
        kind: resource.kind,
        namespaced: resource.namespaced,
        aliases,
    }
}

/// Some objects are served in two groups. They are backed up once, in the group that Velero uses.
fn drop_cohabitating(resources: &mut Vec<Resource>) {
    let served: Vec<(String, String)> = resources.iter().map(|r| (r.group.clone(), r.plural.clone())).collect();
    let is_served = |group: &str, plural: &str| served.iter().any(|(g, p)| g == group && p == plural);
    resources.retain(|resource| {
        !COHABITATING_RESOURCES.iter().any(|(plural, kept, dropped)| {
            resource.plural == *plural && resource.group == *dropped && is_served(kept, plural)
        })
    });
}

#[cfg(test)]
mod tests {
    use super::super::resource::pods;
    use super::*;

    #[test]
    fn resources_of_several_versions_are_discovered_once() {
        let mut found = Discovery::default();
        found.add(vec![pods()]);
        found.add(vec![Resource { version: "v2".into(), ..pods() }, Resource { plural: "others".into(), ..pods() }]);
        let found: Vec<_> = found.resources.iter().map(|one| (one.plural.as_str(), one.version.as_str())).collect();
        assert_eq!(found, [("pods", "v1"), ("others", "v1")]);
    }

    #[test]
    fn events_are_backed_up_once() {
        let event = |group: &str| Resource { group: group.into(), plural: "events".into(), ..pods() };
        let mut resources = vec![event(""), event("events.k8s.io"), pods()];
        drop_cohabitating(&mut resources);
        assert_eq!(resources, [event(""), pods()]);
    }
}
