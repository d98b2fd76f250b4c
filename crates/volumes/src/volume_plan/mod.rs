//! Plan of the volumes of a backup, for a dry run: what each gets, and why.

mod claim;

use std::collections::{HashMap, HashSet};
use std::pin::pin;

use futures::{Stream, StreamExt, stream};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use plimsoll_api::velero::v1::VolumeSnapshotLocation;
use plimsoll_engine::Error;
use plimsoll_engine::backup::BackupPlan;
use plimsoll_engine::cluster::{Cluster, ItemMeta, list_pages};
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_progress::Task;
use plimsoll_select::quantity::Quantity;
use plimsoll_select::resources::ResourceMapper;
use serde::Serialize;
use serde_json::{Value, json};

pub use self::claim::SnapshotRequest;
use self::claim::{SnapshotSupport, is_by_class, method_of};
use crate::csi::{SNAPSHOTS, classes};
use crate::fs_backup::{
    Choice, FsBackupPolicy, UNMOUNTED, VolumeBinding, VolumeReader, claim_name, unsupported_type, volumes,
    windows_refused,
};

/// One volume of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedVolume {
    /// `namespace/name` of the pod that has it, unless it is planned by its claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Its name in the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// `namespace/name` of its claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// The planned method.
    pub method: Method,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is known about its size and place.
    #[serde(skip)]
    pub extent: VolumeExtent,
}

/// What the cluster says about a volume before anything is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeExtent {
    /// The uid of its claim.
    pub claim_uid: Option<String>,
    /// The capacity of its claim, in bytes.
    pub capacity: Option<u64>,
    /// The node of the pod that has it.
    pub node: Option<String>,
    /// Its PersistentVolume.
    pub persistent_volume: Option<String>,
    /// A CSI driver takes its snapshot, and no plugin.
    pub by_class: bool,
}

impl VolumeExtent {
    fn of(claim: Option<&Value>, pod: Option<&Value>) -> Self {
        let text = |value: Option<&Value>, place: &str| {
            value.and_then(|value| value.pointer(place)).and_then(Value::as_str).map(str::to_owned)
        };
        let capacity =
            text(claim, "/status/capacity/storage").or_else(|| text(claim, "/spec/resources/requests/storage"));
        Self {
            claim_uid: text(claim, "/metadata/uid"),
            capacity: capacity.and_then(|capacity| Quantity::parse(&capacity)?.whole()),
            node: text(pod, "/spec/nodeName"),
            persistent_volume: text(claim, "/spec/volumeName"),
            by_class: false,
        }
    }
}

/// The planned method of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Its files would be backed up.
    FsBackup,
    /// A snapshot of it would be taken.
    Snapshot,
    /// A snapshot of it would be taken, and its data moved into the repository.
    Moved,
    /// Nothing, and nothing is requested.
    None,
    /// Nothing, because a policy or a filter says so, or because no container mounts it.
    Skipped,
    /// Nothing, although it is requested.
    Refused,
}

/// The volumes of the pods and claims of a backup with this plan, and their methods. `namespace` is that of the Backup.
pub async fn plan(
    cluster: &Cluster,
    plan: &BackupPlan,
    item_filter: &ItemFilter,
    policy: &FsBackupPolicy,
    snapshots: SnapshotRequest,
    namespace: &str,
    task: &Task,
) -> Result<Vec<PlannedVolume>, Error> {
    task.say("reading volumes");
    let reading = VolumeReader { cluster, task };
    let mut planning = Planning { reading, policy, windows: HashMap::new(), claims: HashSet::new(), all: Vec::new() };
    let selected = SelectedItems { cluster, plan, item_filter, task };
    let mut pods = pin!(selected.pages("pods"));
    while let Some(page) = pods.next().await {
        for (path, pod) in page? {
            planning.pod(&path, &pod).await?;
        }
    }
    let mut claims = pin!(selected.pages("persistentvolumeclaims"));
    let mut support = None;
    while let Some(page) = claims.next().await {
        for (path, claim) in page? {
            let support = match &mut support {
                Some(support) => support,
                None => support.insert(snapshot_support(cluster, item_filter, namespace).await?),
            };
            planning.claim(path, &claim, snapshots, support).await?;
        }
    }
    Ok(planning.all)
}

/// Reads the objects that the filters of a backup select.
struct SelectedItems<'a> {
    cluster: &'a Cluster,
    plan: &'a BackupPlan,
    item_filter: &'a ItemFilter,
    task: &'a Task,
}

impl SelectedItems<'_> {
    /// The selected objects of a resource, with their paths, page by page.
    fn pages(&self, group_resource: &'static str) -> impl Stream<Item = Result<Vec<(String, Value)>, Error>> {
        let Self { cluster, plan, item_filter, task } = *self;
        let planned = plan.resources.iter().find(|planned| planned.resource.group_resource() == group_resource);
        let queries = planned
            .into_iter()
            .flat_map(|planned| plan.queries(&planned.resource).into_iter().map(|query| (&planned.resource, query)));
        let select = move |item: &[u8]| {
            let meta = ItemMeta::of(item).ok()?;
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            let here = plan.namespaces.as_ref().is_none_or(|names| names.contains(namespace));
            let selected = here && item_filter.includes_item(group_resource, &meta);
            selected.then(|| (meta.path(), serde_json::from_slice(item).unwrap_or_default()))
        };
        stream::iter(queries)
            .flat_map(move |(resource, query)| list_pages(cluster, resource, query, task, &|| {}))
            .map(move |page| Ok(page?.items.iter().filter_map(|item| select(item)).collect()))
    }
}

async fn snapshot_support(
    cluster: &Cluster,
    item_filter: &ItemFilter,
    namespace: &str,
) -> Result<SnapshotSupport, Error> {
    let client = cluster.client();
    let classes = if item_filter.catalog().resolve(SNAPSHOTS).is_none() {
        None
    } else {
        let all = classes(client).list(&ListParams::default()).await;
        let all = all.map_err(|e| Error::api("list VolumeSnapshotClasses", e))?;
        Some(all.items.iter().map(|class| json!(class)).collect())
    };
    let locations: Api<VolumeSnapshotLocation> = Api::namespaced(client.clone(), namespace);
    let locations = match locations.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        found => found.map_err(|e| Error::api("list VolumeSnapshotLocations", e))?.items,
    };
    Ok(SnapshotSupport { classes, locations: locations.iter().map(ResourceExt::name_any).collect() })
}

struct Planning<'a> {
    reading: VolumeReader<'a>,
    policy: &'a FsBackupPolicy,
    windows: HashMap<String, bool>,
    claims: HashSet<String>,
    all: Vec<PlannedVolume>,
}

impl Planning<'_> {
    async fn pod(&mut self, path: &str, pod: &Value) -> Result<(), Error> {
        let namespace = path.split('/').next().unwrap_or_default();
        for volume in volumes(pod) {
            let claim_path = claim_name(pod, volume).map(|name| format!("{namespace}/{name}"));
            // Its claim decides.
            if claim_path.is_some() && !self.policy.concern(pod) {
                continue;
            }
            let (claim, persistent) = self.reading.binding(pod, volume).await?;
            let binding = VolumeBinding { claim: claim.as_ref(), volume: persistent.as_ref() };
            let (method, reason) = match self.policy.choose(pod, volume, binding) {
                Choice::Leave if claim_path.is_some() || unsupported_type(volume).is_some() => continue,
                Choice::Leave => (Method::None, Some("its files are not requested".to_owned())),
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
            let volume = volume["name"].as_str().map(str::to_owned);
            let extent = VolumeExtent::of(claim.as_ref(), Some(pod));
            let (pod, claim) = (Some(path.to_owned()), claim_path);
            self.all.push(PlannedVolume { pod, volume, claim, method, reason, extent });
        }
        Ok(())
    }

    /// Plans a claim, unless a pod decides about it.
    async fn claim(
        &mut self,
        path: String,
        claim: &Value,
        snapshots: SnapshotRequest,
        support: &SnapshotSupport,
    ) -> Result<(), Error> {
        if self.all.iter().any(|planned| planned.claim.as_deref() == Some(&*path)) {
            return Ok(());
        }
        let volume = self.reading.volume_of(claim).await?;
        let (method, reason) = method_of(claim, volume.as_ref(), self.policy.policies.as_ref(), snapshots, support);
        let extent = VolumeExtent { by_class: is_by_class(&reason), ..VolumeExtent::of(Some(claim), None) };
        let reason = Some(reason);
        self.all.push(PlannedVolume { pod: None, volume: None, claim: Some(path), method, reason, extent });
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
