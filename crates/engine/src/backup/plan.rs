//! What a backup will read, and about how much that is.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use plimsoll_api::labels;
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_select::resource_order::backup_rank;
use serde::Serialize;

use crate::cluster::{Cluster, Discovered, ItemMeta, PageQuery, Resource, pages};
use crate::selection::Selecting;
use crate::{Error, Patience};

/// Up to so many namespaces are listed one by one; above, one cluster-wide list is cheaper than so many requests.
const FEW_NAMESPACES: usize = 8;
/// How many counts are asked for at the same time.
const PARALLEL_COUNTS: usize = 8;

/// What a backup will read.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupPlan {
    /// Resources in the order in which reading them begins.
    pub resources: Vec<PlannedResource>,
    /// The selected namespaces; absent if every namespace is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<BTreeSet<String>>,
    /// Label selector that the API server applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// Resources that the API server serves, planned or not, by group-resource.
    #[serde(skip)]
    pub served: BTreeMap<String, Resource>,
    /// What was asked for and is not there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// What will be missing, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One resource of a plan.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedResource {
    /// What to list.
    #[serde(flatten)]
    pub resource: Resource,
    /// About how many there are; absent where the API server does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<u64>,
}

impl BackupPlan {
    /// About how many items there are, if that is known of every resource.
    pub fn expected(&self) -> Option<u64> {
        self.resources.iter().map(|planned| planned.expected).sum()
    }

    /// The lists that find the selected objects of a resource.
    pub fn queries(&self, resource: &Resource) -> Vec<PageQuery> {
        let query = PageQuery { limit: 500, label_selector: self.labels_for(resource), ..PageQuery::default() };
        match &self.namespaces {
            Some(few) if resource.namespaced && few.len() <= FEW_NAMESPACES => {
                few.iter().map(|ns| PageQuery { namespace: Some(ns.clone()), ..query.clone() }).collect()
            }
            _ => vec![query],
        }
    }

    /// Namespaces are kept for what they hold, so their own labels do not decide.
    fn labels_for(&self, resource: &Resource) -> Option<String> {
        if is_namespaces(resource) { None } else { self.label_selector.clone() }
    }
}

/// Whether this is the resource of namespaces themselves.
pub fn is_namespaces(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "namespaces"
}

/// Finds out what there is and counts it. `task` shows how far that is.
pub async fn plan(
    cluster: &Cluster,
    select: impl FnOnce(&[Resource], &[String]) -> Result<Selecting, Error>,
    task: &Task,
) -> Result<(BackupPlan, Selecting), Error> {
    task.say("discovering resources");
    let Discovered { resources, unavailable } = Patience::default().run(task, || cluster.discover()).await?;
    let all_namespaces = list_namespaces(cluster, task).await?;
    let names: Vec<String> = all_namespaces.iter().map(|meta| meta.name.clone()).collect();
    let selecting = select(&resources, &names)?;
    let namespaces = selected_namespaces(&selecting, &all_namespaces);
    let served = resources.iter().map(|resource| (resource.group_resource(), resource.clone())).collect();
    let resources = resources.into_iter().filter(|resource| is_namespaces(resource) || selecting.resource(resource));
    let mut plan = BackupPlan {
        resources: resources.map(|resource| PlannedResource { resource, expected: None }).collect(),
        namespaces,
        label_selector: selecting.label_query(),
        served,
        errors: absent_namespaces(&selecting, &names),
        warnings: unavailable.into_iter().map(|(api, why)| format!("API {api} is left out: {why}")).collect(),
    };
    plan.resources.sort_by_key(|planned| backup_rank(&planned.resource.group, &planned.resource.plural));
    count(cluster, &mut plan, task).await?;
    Ok((plan, selecting))
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
    let query = PageQuery { limit: 500, ..PageQuery::default() };
    let mut found = std::pin::pin!(pages(cluster, &namespaces, query, task, &|| {}));
    while let Some(page) = found.next().await {
        all.extend(page?.items.iter().filter_map(|item| ItemMeta::of(item).ok()));
    }
    Ok(all)
}

/// The namespaces that are selected, are not going away and do not ask to be left out; `None` if that is all of them.
fn selected_namespaces(selecting: &Selecting, all: &[ItemMeta]) -> Option<BTreeSet<String>> {
    let keeps = |meta: &&ItemMeta| selecting.namespace(&meta.name) && !asks_to_be_left_out(meta);
    let selected: BTreeSet<String> = all.iter().filter(keeps).map(|meta| meta.name.clone()).collect();
    (selected.len() < all.len()).then_some(selected)
}

/// A namespace that is asked for by its name and is not there is an error: somebody believes that it is backed up.
fn absent_namespaces(selecting: &Selecting, all: &[String]) -> Vec<String> {
    let absent = selecting.named_namespaces().into_iter().filter(|name| !all.iter().any(|there| there == name));
    absent.map(|name| format!("namespace {name} is included by its name, and is not there")).collect()
}

/// Whether a namespace carries the label that keeps it out of every backup, with all it holds.
fn asks_to_be_left_out(meta: &ItemMeta) -> bool {
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

/// A count that fails is only a count: reading will say what is wrong.
async fn count_all(cluster: &Cluster, resource: &Resource, queries: &[PageQuery]) -> Option<u64> {
    let mut sum = 0;
    for query in queries {
        sum += cluster.count(resource, query).await.ok().flatten()?;
    }
    Some(sum)
}
