//! The plan of a backup: resources, namespaces, expected counts.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use plimsoll_api::labels;
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_select::resource_order::backup_rank;
use serde::Serialize;

use crate::cluster::{Cluster, Discovery, ItemMeta, PageQuery, Resource, list_pages};
use crate::item_filter::ItemFilter;
use crate::{Error, RetryPolicy};

/// Up to so many namespaces are listed one by one; for more, one cluster-wide list is cheaper.
const MAX_LISTED_NAMESPACES: usize = 8;
/// Resources counted in parallel.
const PARALLEL_COUNTS: usize = 8;

/// The plan of a backup.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupPlan {
    /// Resources, in the order in which they are read.
    pub resources: Vec<PlannedResource>,
    /// The selected namespaces; `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<BTreeSet<String>>,
    /// Maximum number of objects in one request; zero means no limit.
    #[serde(skip)]
    pub page_size: u32,
    /// Label selector that the API server applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// All resources that the API server serves, by group-resource.
    #[serde(skip)]
    pub served: BTreeMap<String, Resource>,
    /// Requested objects that do not exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// APIs that are excluded, with the cause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One resource of a plan.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedResource {
    /// The resource.
    #[serde(flatten)]
    pub resource: Resource,
    /// Expected number of objects, if the API server reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<u64>,
}

impl BackupPlan {
    /// Expected number of items, if it is known for every resource.
    pub fn expected(&self) -> Option<u64> {
        self.resources.iter().map(|planned| planned.expected).sum()
    }

    /// The LIST requests for the selected objects of a resource.
    pub fn queries(&self, resource: &Resource) -> Vec<PageQuery> {
        let query =
            PageQuery { limit: self.page_size, label_selector: self.labels_for(resource), ..PageQuery::default() };
        match &self.namespaces {
            Some(names) if resource.namespaced && names.len() <= MAX_LISTED_NAMESPACES => {
                names.iter().map(|ns| PageQuery { namespace: Some(ns.clone()), ..query.clone() }).collect()
            }
            _ => vec![query],
        }
    }

    /// Namespaces are included because of their items, so the label selector does not apply to them.
    fn labels_for(&self, resource: &Resource) -> Option<String> {
        if is_namespaces(resource) { None } else { self.label_selector.clone() }
    }
}

/// Whether this is the resource `namespaces`.
pub fn is_namespaces(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "namespaces"
}

/// Discovers and counts the objects to back up. `task` shows the progress.
pub async fn plan(
    cluster: &Cluster,
    select: impl FnOnce(&[Resource], &[String]) -> Result<ItemFilter, Error>,
    task: &Task,
) -> Result<(BackupPlan, ItemFilter), Error> {
    task.say("discovering resources");
    let Discovery { resources, unavailable } = RetryPolicy::default().run(task, || cluster.discover()).await?;
    let all_namespaces = list_namespaces(cluster, task).await?;
    let names: Vec<String> = all_namespaces.iter().map(|meta| meta.name.clone()).collect();
    let item_filter = select(&resources, &names)?;
    let namespaces = selected_namespaces(&item_filter, &all_namespaces);
    let served = resources.iter().map(|resource| (resource.group_resource(), resource.clone())).collect();
    let resources =
        resources.into_iter().filter(|resource| is_namespaces(resource) || item_filter.includes_resource(resource));
    let mut plan = BackupPlan {
        resources: resources.map(|resource| PlannedResource { resource, expected: None }).collect(),
        namespaces,
        page_size: cluster.page_size(),
        label_selector: item_filter.label_query(),
        served,
        errors: missing_namespaces(&item_filter, &names),
        warnings: unavailable.into_iter().map(|(api, error)| format!("API {api} is excluded: {error}")).collect(),
    };
    plan.resources.sort_by_key(|planned| backup_rank(&planned.resource.group, &planned.resource.plural));
    count(cluster, &mut plan, task).await?;
    Ok((plan, item_filter))
}

async fn list_namespaces(cluster: &Cluster, task: &Task) -> Result<Vec<ItemMeta>, Error> {
    task.say("listing namespaces");
    let namespaces = Resource {
        group: String::new(),
        version: "v1".into(),
        plural: "namespaces".into(),
        kind: "Namespace".into(),
        namespaced: false,
        aliases: Vec::new(),
    };
    let mut all = Vec::new();
    let query = PageQuery { limit: cluster.page_size(), ..PageQuery::default() };
    let mut found = std::pin::pin!(list_pages(cluster, &namespaces, query, task, &|| {}));
    while let Some(page) = found.next().await {
        all.extend(page?.items.iter().filter_map(|item| ItemMeta::of(item).ok()));
    }
    Ok(all)
}

/// The selected namespaces, without excluded ones; `None` if that is all of them.
fn selected_namespaces(item_filter: &ItemFilter, all: &[ItemMeta]) -> Option<BTreeSet<String>> {
    let keeps = |meta: &&ItemMeta| item_filter.includes_namespace(&meta.name) && !is_excluded_by_label(meta);
    let selected: BTreeSet<String> = all.iter().filter(keeps).map(|meta| meta.name.clone()).collect();
    (selected.len() < all.len()).then_some(selected)
}

/// A namespace that is included by name must exist: a backup without it would be incomplete unnoticed.
fn missing_namespaces(item_filter: &ItemFilter, all: &[String]) -> Vec<String> {
    let absent = item_filter.named_namespaces().into_iter().filter(|name| !all.iter().any(|there| there == name));
    absent.map(|name| format!("included namespace {name} not found")).collect()
}

/// Whether a namespace has the label that excludes it from backups.
fn is_excluded_by_label(meta: &ItemMeta) -> bool {
    let value = meta.labels.as_ref().and_then(|all| all.get(labels::EXCLUDE_FROM_BACKUP));
    value.is_some_and(|value| value == "true")
}

async fn count(cluster: &Cluster, plan: &mut BackupPlan, task: &Task) -> Result<(), Error> {
    let steps = task.meter(Unit::Steps);
    steps.set_total(Total::Final(plan.resources.len() as u64));
    let counts: Vec<_> = stream::iter(0..plan.resources.len())
        .map(|index| {
            let (resource, queries) = (&plan.resources[index].resource, plan.queries(&plan.resources[index].resource));
            let steps = steps.clone();
            async move {
                task.say(format!("counting {}", resource.group_resource()));
                let expected = count_all(cluster, resource, &queries).await;
                steps.add(1);
                expected
            }
        })
        .buffered(PARALLEL_COUNTS)
        .collect()
        .await;
    for (planned, expected) in plan.resources.iter_mut().zip(counts) {
        planned.expected = expected;
    }
    Ok(())
}

/// A failed count is ignored: reading reports the error.
async fn count_all(cluster: &Cluster, resource: &Resource, queries: &[PageQuery]) -> Option<u64> {
    let mut sum = 0;
    for query in queries {
        sum += cluster.count(resource, query).await.ok().flatten()?;
    }
    Some(sum)
}
