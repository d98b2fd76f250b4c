//! Plan of the pod volumes of a backup, for a dry run.

use std::collections::{HashMap, HashSet};
use std::pin::pin;

use futures::StreamExt;
use plimsoll_engine::Error;
use plimsoll_engine::backup::BackupPlan;
use plimsoll_engine::cluster::{Cluster, ItemMeta, list_pages};
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_progress::Task;
use serde::Serialize;
use serde_json::Value;

use super::backup::{UNMOUNTED, windows_refused};
use super::policy::{Choice, FsBackupPolicy, VolumeBinding, volumes};
use super::volume_reader::VolumeReader;

/// One volume of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedVolume {
    /// `namespace/name` of the pod that has it.
    pub pod: String,
    /// Its name in the pod.
    pub volume: String,
    /// The planned method.
    pub method: Method,
    /// Why nothing would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The planned method of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Its files would be backed up.
    FsBackup,
    /// Nothing, because a policy or a filter says so, or because no container mounts it.
    Skipped,
    /// Nothing, although it is requested.
    Refused,
}

/// The volumes that a backup with this plan requests, and their methods.
pub async fn plan(
    cluster: &Cluster,
    plan: &BackupPlan,
    item_filter: &ItemFilter,
    policy: &FsBackupPolicy,
    task: &Task,
) -> Result<Vec<PlannedVolume>, Error> {
    task.say("looking at volumes");
    let reading = VolumeReader { cluster, task };
    let mut planning =
        VolumePlanner { reading, policy, windows: HashMap::new(), claims: HashSet::new(), all: Vec::new() };
    let Some(pods) = plan.resources.iter().find(|planned| planned.resource.group_resource() == "pods") else {
        return Ok(Vec::new());
    };
    for query in plan.queries(&pods.resource) {
        let mut found = pin!(list_pages(cluster, &pods.resource, query, task, &|| {}));
        while let Some(page) = found.next().await {
            for item in page?.items {
                let Ok(meta) = ItemMeta::of(&item) else { continue };
                let namespace = meta.namespace.as_deref().unwrap_or_default();
                let here = plan.namespaces.as_ref().is_none_or(|names| names.contains(namespace));
                if here && item_filter.includes_item("pods", &meta) {
                    planning.pod(&meta.path(), &serde_json::from_slice(&item).unwrap_or_default()).await?;
                }
            }
        }
    }
    Ok(planning.all)
}

struct VolumePlanner<'a> {
    reading: VolumeReader<'a>,
    policy: &'a FsBackupPolicy,
    windows: HashMap<String, bool>,
    claims: HashSet<String>,
    all: Vec<PlannedVolume>,
}

impl VolumePlanner<'_> {
    async fn pod(&mut self, path: &str, pod: &Value) -> Result<(), Error> {
        if !self.policy.concern(pod) {
            return Ok(());
        }
        for volume in volumes(pod) {
            let (claim, persistent) = self.reading.binding(pod, volume).await?;
            let binding = VolumeBinding { claim: claim.as_ref(), volume: persistent.as_ref() };
            let (method, reason) = match self.policy.choose(pod, volume, binding) {
                Choice::Leave => continue,
                Choice::Skip(why) => (Method::Skipped, Some(why)),
                Choice::Exclude(why) => (Method::Skipped, Some(why.to_owned())),
                Choice::Unmounted => (Method::Skipped, Some(UNMOUNTED.to_owned())),
                Choice::Refuse { why, .. } => (Method::Refused, Some(why)),
                Choice::BackUp => match self.obstacle(pod).await? {
                    Some(why) => (Method::Refused, Some(why)),
                    None if self.is_shared(claim.as_ref()) => continue,
                    None => (Method::FsBackup, None),
                },
            };
            let volume = volume["name"].as_str().unwrap_or_default().to_owned();
            self.all.push(PlannedVolume { pod: path.to_owned(), volume, method, reason });
        }
        Ok(())
    }

    /// Whether another pod has brought the same claim.
    fn is_shared(&mut self, claim: Option<&Value>) -> bool {
        let uid = claim.and_then(|claim| claim.pointer("/metadata/uid")).and_then(Value::as_str);
        uid.is_some_and(|uid| !self.claims.insert(uid.to_owned()))
    }

    /// Why the volumes of a pod cannot be read.
    async fn obstacle(&mut self, pod: &Value) -> Result<Option<String>, Error> {
        let text = |place: &str| pod.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (phase, node) = (text("/status/phase"), text("/spec/nodeName"));
        if phase != "Running" {
            return Ok(Some(format!("its pod is {phase}, not Running")));
        }
        let windows = match self.windows.get(&node) {
            Some(known) => *known,
            None => self.reading.runs_windows(&node).await?,
        };
        self.windows.insert(node.clone(), windows);
        Ok(windows.then(|| windows_refused(&node)))
    }
}
