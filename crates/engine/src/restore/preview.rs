//! Dry run of a restore: the expected outcome of every item, and missing objects and permissions. Nothing is written.
//!
//! ```text
//!  archive (a file or a stream) ──▶ preview ──▶ on_item(…) for each item
//!  cluster (only read)               │
//!                                    └──▶ Preview: counts, missing objects, missing permissions
//! ```
//! It uses the same selection, actions, modifiers and comparison as a run, so the result holds for a cluster that does not
//! change meanwhile. One difference: additional items are not processed before the item that needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use plimsoll_api::velero::v1::Restore;
use plimsoll_archive::spool::{SealedSpool, SpooledObject};
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_select::resource_modifiers::ResourceModifiers;
use plimsoll_select::resource_policies::ResourcePolicies;
use serde::Serialize;
use serde_json::{Value, json};

use super::action::{ItemId, RestoreActionInput};
use super::actions::{ActionContext, Actions, register_built_ins};
use super::backup_volumes::{BackupVolumes, VolumeDecision, release_volume};
use super::existing_object::{ExistingObject, ExistingPolicy, compare_existing, service_account_patch, update_patch};
use super::hooks::RestoreHooks;
use super::item::{RestoreOrigin, set_namespace_and_labels, skip_reason, strip};
use super::namespaces::NAMESPACES;
use super::plan::{ReserveFilter, RestorePlan, read_archive};
use crate::cluster::{Cluster, Resource, collection_path};
use crate::item_filter::ItemFilter;
use crate::outcome::Recorder;
use crate::{Error, RetryPolicy};

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

/// The expected outcome of one item.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviewItem {
    /// `apps/v1/Deployment`.
    pub kind: String,
    /// The target namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The expected outcome.
    #[serde(flatten)]
    pub verdict: PreviewVerdict,
}

/// The expected outcome of an item.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "verdict")]
pub enum PreviewVerdict {
    /// It does not exist, and would be created.
    Create,
    /// It exists and is equal.
    Equal,
    /// It exists and differs.
    Differ {
        /// The merge patch from the existing to the restored object.
        difference: Value,
        /// Whether the restore would update it.
        updated: bool,
    },
    /// It would be skipped.
    Skip {
        /// The same stable reason as in a run.
        reason: String,
    },
    /// It would fail.
    Fail {
        /// The same stable reason as in a run.
        reason: String,
        /// Message.
        message: String,
    },
}

impl PreviewVerdict {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Equal => "equal",
            Self::Differ { .. } => "differ",
            Self::Skip { .. } => "skip",
            Self::Fail { .. } => "fail",
        }
    }
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

    async fn item(&self, spool: &SealedSpool, row: usize, task: &Task) -> Result<PreviewedItem, Error> {
        let spooled = spool.read(row).map_err(|source| Error::Archive { name: "spool".into(), source })?;
        let mut additional = Vec::new();
        let object: Value = match serde_json::from_slice(&spooled.json) {
            Ok(object) => object,
            Err(error) => {
                return Ok(self.previewed(&spooled, &Value::Null, fail("Unreadable", error.to_string()), additional));
            }
        };
        let verdict = self.verdict(&spooled, &object, &mut additional, task).await?;
        Ok(self.previewed(&spooled, &object, verdict, additional))
    }

    fn previewed(
        &self,
        spooled: &SpooledObject,
        object: &Value,
        verdict: PreviewVerdict,
        additional: Vec<ItemId>,
    ) -> PreviewedItem {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let name = match spooled.group_resource.as_str() {
            NAMESPACES => self.origin.target(&spooled.name),
            _ => &spooled.name,
        };
        let item = PreviewItem {
            kind: format!("{}/{}", text("apiVersion"), text("kind")),
            namespace: spooled.namespace.as_deref().map(|namespace| self.origin.target(namespace).to_owned()),
            name: name.to_owned(),
            verdict,
        };
        PreviewedItem { item, additional, storage_classes: storage_classes(object) }
    }

    async fn verdict(
        &self,
        spooled: &SpooledObject,
        from_backup: &Value,
        additional: &mut Vec<ItemId>,
        task: &Task,
    ) -> Result<PreviewVerdict, Error> {
        let resource = spooled.group_resource.as_str();
        if let Some(reason) = skip_reason(resource, from_backup) {
            return Ok(skip(reason));
        }
        if resource == NAMESPACES {
            let path = format!("/api/v1/namespaces/{}", self.origin.target(&spooled.name));
            let existing = self.read(&path, task).await?.is_some();
            return Ok(if existing { PreviewVerdict::Equal } else { PreviewVerdict::Create });
        }
        let mut object = from_backup.clone();
        if resource == "persistentvolumes" {
            match self.volumes.decide(&object) {
                VolumeDecision::RestoreObject => release_volume(&mut object, &self.origin),
                VolumeDecision::Provision(_) => {
                    self.volumes.mark_provisioned(&spooled.name);
                    return Ok(skip("WillBeProvisioned"));
                }
                // As far as known without calling the plugin.
                VolumeDecision::RestoreSnapshot => {
                    let path = format!("/api/v1/persistentvolumes/{}", spooled.name);
                    if self.read(&path, task).await?.is_none() {
                        return Ok(PreviewVerdict::Create);
                    }
                    release_volume(&mut object, &self.origin);
                }
            }
        }
        strip(&mut object);
        let mut object = match self.run_actions(resource, object, from_backup, additional).await {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(skip("SkippedByAction")),
            Err(error) => return Ok(fail("ActionFailed", error)),
        };
        if resource == "persistentvolumeclaims" {
            self.volumes.release_claim(&mut object);
        }
        let errors = self.modifiers.as_ref().map(|rules| rules.apply(&mut object, resource)).unwrap_or_default();
        if let Some(error) = errors.first() {
            return Ok(fail(error.reason(), error.to_string()));
        }
        self.compare(resource, object, from_backup, task).await
    }

    async fn run_actions(
        &self,
        resource: &str,
        mut object: Value,
        from_backup: &Value,
        additional: &mut Vec<ItemId>,
    ) -> Result<Option<Value>, String> {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let namespace = namespace.map(|namespace| self.origin.target(namespace).to_owned());
        let labels = object.pointer("/metadata/labels").cloned().unwrap_or_default();
        for (name, action) in self.actions.for_item(resource, namespace.as_deref(), &labels) {
            let input = RestoreActionInput { item: object, from_backup, restore: &self.raw };
            let output = action.execute(input).await.map_err(|error| format!("item action {name}: {error}"))?;
            if output.skip {
                return Ok(None);
            }
            additional.extend(output.additional);
            object = output.item;
        }
        Ok(Some(object))
    }

    async fn compare(
        &self,
        resource: &str,
        mut object: Value,
        from_backup: &Value,
        task: &Task,
    ) -> Result<PreviewVerdict, Error> {
        let mut original = from_backup.clone();
        strip(&mut original);
        for object in [&mut object, &mut original] {
            set_namespace_and_labels(object, &self.origin);
            object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
        }
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let plural = resource.split('.').next().unwrap_or_default();
        let collection = collection_path(text("/apiVersion").unwrap_or_default(), plural, text("/metadata/namespace"));
        let path = format!("{collection}/{}", text("/metadata/name").unwrap_or_default());
        let Some(existing) = self.read(&path, task).await? else { return Ok(PreviewVerdict::Create) };
        Ok(match compare_existing(&existing, &object, &original, &self.origin) {
            ExistingObject::CreatedByRestore | ExistingObject::Equal => PreviewVerdict::Equal,
            ExistingObject::Different => self.difference(resource, &existing, &object, &original),
        })
    }

    fn difference(&self, resource: &str, existing: &Value, object: &Value, original: &Value) -> PreviewVerdict {
        let merged = resource == "serviceaccounts";
        let patch =
            if merged { service_account_patch(existing, object) } else { update_patch(existing, object, original) };
        match patch {
            None => PreviewVerdict::Equal,
            Some(mut difference) => {
                remove_restore_labels(&mut difference);
                PreviewVerdict::Differ { difference, updated: merged || self.existing == ExistingPolicy::Update }
            }
        }
    }

    async fn read(&self, path: &str, task: &Task) -> Result<Option<Value>, Error> {
        match RetryPolicy::default().run(task, || self.cluster.get(path)).await {
            Ok(found) => Ok(found.and_then(|bytes| serde_json::from_slice(&bytes).ok())),
            // Unknown whether it exists; the missing permission is reported elsewhere.
            Err(error) if error.code() == Some(403) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds an item to the preview.
    fn add_item(&self, found: &mut Preview, previewed: &PreviewedItem, plan: &RestorePlan) -> Result<(), Error> {
        found.missing_storage_classes.extend(previewed.storage_classes.iter().cloned());
        found.missing_namespaces.extend(previewed.item.namespace.clone());
        let spool_error = |source| Error::Archive { name: "spool".into(), source };
        for wanted in &previewed.additional {
            let (resource, namespace) = (wanted.group_resource.as_str(), wanted.namespace.as_deref());
            if plan.spool.find(resource, namespace, &wanted.name).map_err(spool_error)?.is_some() {
                continue;
            }
            let in_reserve = plan.reserve.find(resource, namespace, &wanted.name).map_err(spool_error)?.is_some();
            let selected = self.item_filter.restores_additional_item(resource, namespace, &wanted.name);
            match (in_reserve, selected) {
                (true, true) => drop(found.additional.insert(wanted.to_string())),
                (true, false) => {}
                (false, _) => drop(found.missing_additional.insert(wanted.to_string())),
            }
        }
        Ok(())
    }

    /// Removes the objects that exist from the missing ones.
    async fn find_missing(&self, found: &mut Preview, plan: &RestorePlan, task: &Task) -> Result<(), Error> {
        for name in std::mem::take(&mut found.missing_namespaces) {
            if self.read(&format!("/api/v1/namespaces/{name}"), task).await?.is_none() {
                found.missing_namespaces.insert(name);
            }
        }
        let spool_error = |source| Error::Archive { name: "spool".into(), source };
        for name in std::mem::take(&mut found.missing_storage_classes) {
            let restored =
                plan.spool.find("storageclasses.storage.k8s.io", None, &name).map_err(spool_error)?.is_some();
            let path = format!("/apis/storage.k8s.io/v1/storageclasses/{name}");
            if !restored && self.read(&path, task).await?.is_none() {
                found.missing_storage_classes.insert(name);
            }
        }
        for (resource, _) in plan.spool.resources() {
            let definitions = "customresourcedefinitions.apiextensions.k8s.io";
            let restored = plan.spool.find(definitions, None, resource).map_err(spool_error)?.is_some();
            if !restored && !self.resources.iter().any(|served| served.group_resource() == resource) {
                found.missing_kinds.insert(resource.to_owned());
            }
        }
        Ok(())
    }

    /// Checks whether the caller may create the planned objects: in all namespaces at once, otherwise one by one.
    async fn find_not_allowed(&self, found: &mut Preview, plan: &RestorePlan, task: &Task) -> Result<(), Error> {
        for (resource, range) in plan.spool.resources() {
            if self.may_create(resource, None, task).await? {
                continue;
            }
            let rows = range.filter_map(|row| plan.spool.row(row));
            let namespaces: BTreeSet<Option<&str>> = rows.map(|row| row.namespace).collect();
            for namespace in namespaces {
                let target = namespace.map(|namespace| self.origin.target(namespace));
                let suffix = target.map(|target| format!(" in namespace {target}")).unwrap_or_default();
                if target.is_none() || !self.may_create(resource, target, task).await? {
                    found.not_allowed.insert(format!("create {resource}{suffix}"));
                }
            }
        }
        Ok(())
    }

    async fn may_create(&self, resource: &str, namespace: Option<&str>, task: &Task) -> Result<bool, Error> {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let attributes = ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(plural.to_owned()),
            namespace: namespace.map(str::to_owned),
            verb: Some("create".to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.cluster.client().clone());
        let review_access = || async {
            let answer = api.create(&PostParams::default(), &review).await;
            answer.map_err(|error| Error::api(format!("check whether {resource} may be created"), error))
        };
        match RetryPolicy::default().run(task, review_access).await {
            Ok(answer) => Ok(answer.status.is_some_and(|status| status.allowed)),
            // A cluster without authorization allows everything.
            Err(error) if error.code() == Some(404) => Ok(true),
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

fn skip(reason: &str) -> PreviewVerdict {
    PreviewVerdict::Skip { reason: reason.to_owned() }
}

fn fail(reason: &str, message: String) -> PreviewVerdict {
    PreviewVerdict::Fail { reason: reason.to_owned(), message }
}

/// The storage classes of an object.
fn storage_classes(object: &Value) -> Vec<String> {
    let of = |spec: &Value| spec.get("storageClassName").and_then(Value::as_str).map(str::to_owned);
    let class = match object["kind"].as_str() {
        Some("PersistentVolumeClaim" | "PersistentVolume") => object.get("spec").and_then(of).into_iter().collect(),
        Some("StatefulSet") => {
            let claims = object.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array).into_iter().flatten();
            claims.filter_map(|claim| claim.get("spec").and_then(of)).collect()
        }
        _ => Vec::new(),
    };
    class.into_iter().filter(|class: &String| !class.is_empty()).collect()
}

/// Removes the labels of the restore from a difference.
fn remove_restore_labels(difference: &mut Value) {
    let Some(metadata) = difference.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.remove(plimsoll_api::labels::BACKUP_NAME);
        labels.remove(plimsoll_api::labels::RESTORE_NAME);
        if labels.is_empty() {
            metadata.remove("labels");
        }
    }
    if metadata.is_empty()
        && let Some(fields) = difference.as_object_mut()
    {
        fields.remove("metadata");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_flattened_into_the_item() {
        let item = PreviewItem {
            kind: "v1/ConfigMap".into(),
            namespace: Some("shop".into()),
            name: "x".into(),
            verdict: PreviewVerdict::Differ { difference: json!({"data": {"k": "v"}}), updated: false },
        };
        assert_eq!(
            json!(item),
            json!({"kind": "v1/ConfigMap", "namespace": "shop", "name": "x", "verdict": "differ", "difference": {"data": {"k": "v"}}, "updated": false})
        );
    }

    #[test]
    fn labels_of_the_restore_are_not_a_difference() {
        let mut difference = json!({"metadata": {"labels": {"velero.io/restore-name": "r", "velero.io/backup-name": "b"}}, "data": {"k": "v"}});
        remove_restore_labels(&mut difference);
        assert_eq!(difference, json!({"data": {"k": "v"}}));
    }

    #[test]
    fn storage_classes_are_read_from_claims_and_templates() {
        let set = json!({"kind": "StatefulSet", "spec": {"volumeClaimTemplates": [{"spec": {"storageClassName": "fast"}}, {"spec": {}}]}});
        assert_eq!(storage_classes(&set), ["fast"]);
        assert!(
            storage_classes(&json!({"kind": "PersistentVolumeClaim", "spec": {"storageClassName": ""}})).is_empty()
        );
    }
}
