//! Dry run of a restore: the expected outcome of every item, and missing objects and permissions. Nothing is written.
//!
//! ```text
//!  archive (a file or a stream) ──▶ preview ──▶ on_item(…) for each item
//!  cluster (only read)               │
//!                                    └──▶ Preview: counts, missing objects, missing permissions
//! ```
//! It uses the same selection, actions, modifiers and comparison as a run, so the result holds for a cluster that does not
//! change meanwhile. One difference: additional items are not processed before the item that needs them.

mod missing;
mod permissions;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt, stream};
use kube::ResourceExt;
use plimsoll_api::velero::v1::Restore;
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_select::resource_modifiers::ResourceModifiers;
use plimsoll_select::resource_policies::ResourcePolicies;
use serde::Serialize;
use serde_json::{Value, json};

use super::action::ItemId;
use super::actions::{ActionContext, Actions, register_built_ins};
use super::backup_volumes::BackupVolumes;
use super::existing_object::ExistingPolicy;
use super::hooks::RestoreHooks;
use super::item::RestoreOrigin;
use super::plan::{ReserveFilter, RestorePlan, read_archive};
use crate::cluster::{Cluster, Resource};
use crate::item_filter::ItemFilter;
use crate::outcome::Recorder;
use crate::{Error, RetryPolicy};

pub use self::verdict::{PreviewItem, PreviewVerdict};

/// Items that are processed in parallel.
const MAX_CONCURRENT_ITEMS: usize = 16;

/// Input of a dry run. The caller has read the ConfigMaps of the Restore.
pub struct PreviewRequest {
    /// The target cluster.
    pub cluster: Cluster,
    /// The Restore; it need not exist in the cluster.
    pub restore: Restore,
    /// Its resource policies.
    pub policies: Option<ResourcePolicies>,
    /// Its resource modifiers.
    pub modifiers: Option<ResourceModifiers>,
    /// The volumes of the backup: [`BackupVolumes::read`], or the default if the location is unreachable.
    pub volumes: BackupVolumes,
}

/// The result of a dry run, beside the items.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// Selected items.
    pub total: u64,
    /// Items that the filters exclude.
    pub excluded: u64,
    /// Number of items by verdict: `create`, `equal`, `differ`, `skip`, `fail`.
    pub counts: BTreeMap<&'static str, u64>,
    /// Damaged entries of the archive.
    pub damaged: Vec<String>,
    /// Target namespaces that do not exist; a restore creates them.
    pub missing_namespaces: BTreeSet<String>,
    /// Kinds that are not served and whose CustomResourceDefinition is not restored: their objects would fail.
    pub missing_kinds: BTreeSet<String>,
    /// Storage classes of claims or volumes that neither exist nor are restored: claims would stay pending.
    pub missing_storage_classes: BTreeSet<String>,
    /// Additional items that would be restored.
    pub additional: BTreeSet<String>,
    /// Additional items that are not in the backup.
    pub missing_additional: BTreeSet<String>,
    /// Missing permissions, as `create deployments.apps in namespace shop`.
    pub not_allowed: BTreeSet<String>,
}

/// Computes what a restore would do. Calls `on_item` once for each item of the plan, in any order within a resource.
///
/// `archive` is the compressed tarball; it is read once, on a separate thread. `scratch` holds the spool, which is deleted at
/// the end.
///
/// # Cancel safety
/// Dropping the future leaves only the reading thread, which ends at its next read.
pub async fn preview(
    request: PreviewRequest,
    archive: impl Read + Send + 'static,
    scratch: &Path,
    task: &Task,
    mut on_item: impl FnMut(PreviewItem),
) -> Result<Preview, Error> {
    let (context, plan, damaged) = PreviewContext::prepare(request, archive, scratch, task).await?;
    let items = task.meter(Unit::Items);
    items.set_total(Total::Final(plan.spool.len() as u64));
    let mut found = Preview { total: plan.total(), excluded: plan.excluded, damaged, ..Preview::default() };
    // One resource after the other: the decisions about volumes apply to their claims.
    for (_, range) in plan.spool.resources() {
        let rows = stream::iter(range).map(|row| context.item(&plan.spool, row, task));
        let mut rows = std::pin::pin!(rows.buffer_unordered(MAX_CONCURRENT_ITEMS));
        while let Some(previewed) = rows.next().await {
            let previewed = previewed?;
            *found.counts.entry(previewed.item.verdict.as_str()).or_default() += 1;
            context.add_item(&mut found, &previewed, &plan)?;
            items.add(1);
            on_item(previewed.item);
        }
    }
    context.find_missing(&mut found, &plan, task).await?;
    context.find_not_allowed(&mut found, &plan, task).await?;
    Ok(found)
}

/// Constant input of the comparison.
struct PreviewContext {
    cluster: Cluster,
    origin: RestoreOrigin,
    raw: Value,
    item_filter: Arc<ItemFilter>,
    actions: Actions,
    resources: Vec<Resource>,
    modifiers: Option<ResourceModifiers>,
    volumes: BackupVolumes,
    existing: ExistingPolicy,
}

/// A processed item.
struct PreviewedItem {
    item: PreviewItem,
    additional: Vec<ItemId>,
    storage_classes: Vec<String>,
}

impl PreviewContext {
    async fn prepare(
        request: PreviewRequest,
        archive: impl Read + Send + 'static,
        scratch: &Path,
        task: &Task,
    ) -> Result<(Self, RestorePlan, Vec<String>), Error> {
        let PreviewRequest { cluster, restore, policies, modifiers, volumes } = request;
        let discovered = RetryPolicy::default().run(task, || cluster.discover()).await?;
        let item_filter = Arc::new(ItemFilter::for_restore(&restore.spec, policies.as_ref(), &discovered.resources)?);
        let hooks = Arc::new(RestoreHooks::new(&restore.spec)?);
        let mut actions = Actions::default();
        let namespace = restore.namespace().unwrap_or_default();
        let action_context = ActionContext { cluster: &cluster, namespace: &namespace, restore: &restore, hooks };
        register_built_ins(&mut actions, &action_context, item_filter.catalog()).await?;
        let (plan, damaged) = read_plan(archive, &item_filter, &actions, scratch).await?;
        let existing = match restore.spec.existing_resource_policy.as_deref() {
            Some("update") => ExistingPolicy::Update,
            _ => ExistingPolicy::None,
        };
        let origin = RestoreOrigin {
            restore: restore.name_any(),
            created: jiff::Timestamp::MAX,
            backup: restore.spec.backup_name.clone().unwrap_or_default(),
            namespaces: restore.spec.namespace_mapping.clone(),
        };
        let (raw, resources) = (json!(restore), discovered.resources);
        let context = Self { cluster, origin, raw, item_filter, actions, resources, modifiers, volumes, existing };
        Ok((context, plan, damaged))
    }

    async fn read(&self, path: &str, task: &Task) -> Result<Option<Value>, Error> {
        match RetryPolicy::default().run(task, || self.cluster.get(path)).await {
            Ok(found) => Ok(found.and_then(|bytes| serde_json::from_slice(&bytes).ok())),
            // Unknown whether it exists; the missing permission is reported elsewhere.
            Err(error) if error.code() == Some(403) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

async fn read_plan(
    archive: impl Read + Send + 'static,
    item_filter: &Arc<ItemFilter>,
    actions: &Actions,
    scratch: &Path,
) -> Result<(RestorePlan, Vec<String>), Error> {
    let (item_filter, reserve_filter, scratch) =
        (Arc::clone(item_filter), ReserveFilter::for_actions(actions), scratch.to_owned());
    let reading = tokio::task::spawn_blocking(move || {
        let recorder = Recorder::create(&scratch)?;
        let plan = read_archive(archive, &item_filter, &reserve_filter, &scratch, &recorder);
        let plan = plan.map_err(|source| Error::Archive { name: "of the backup".into(), source })?;
        let damaged = recorder.finish()?.results.errors.kept.velero;
        Ok((plan, damaged))
    });
    reading.await.unwrap_or_else(|panic| Err(Error::scratch(Path::new("archive"), std::io::Error::other(panic))))
}
