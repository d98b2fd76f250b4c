//! The dry run of a restore: what would become of every item, and what is missing or not allowed. Nothing is written.
//!
//! ```text
//!  archive (a file, or a stream that somebody downloads) ──▶ preview ──▶ on_item(…) for each item, as it is looked at
//!  cluster (only read)                                      │
//!                                                           └──▶ Preview: counts, what is missing, what is not allowed
//! ```
//! It uses the same selection, actions, modifiers and comparison as a run, so what it says is what a run would do on a cluster
//! that does not change meanwhile. It differs in one thing: items that actions ask for are looked at by themselves, not before
//! the item that needs them.

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

use super::action::{Identifier, Input};
use super::actions::{Actions, Surroundings, register_built_ins};
use super::existing::{Existing, ExistingPolicy, judge, merge_account, update};
use super::hooks::RestoreHooks;
use super::item::{Origin, address, finished, strip};
use super::namespaces::NAMESPACES;
use super::plan::{Keep, RestorePlan, read_archive};
use super::volumes::{Decision, Volumes, release_volume};
use crate::cluster::{Cluster, Resource, collection_path};
use crate::outcome::Recorder;
use crate::selection::Selecting;
use crate::{Error, Patience};

/// Items that are looked at at the same time.
const AT_ONCE: usize = 16;

/// What a dry run needs. Everything that stands in the Restore's ConfigMaps is given, read by whoever calls.
pub struct PreviewRequest {
    /// The cluster that would be restored into.
    pub cluster: Cluster,
    /// The Restore; it need not exist. Its name and namespace count, its backup is the one the archive is of.
    pub restore: Restore,
    /// Its `resourcePolicy`, read.
    pub policies: Option<ResourcePolicies>,
    /// Its `resourceModifier`, read.
    pub modifiers: Option<ResourceModifiers>,
    /// What is known of the backup's volumes: [`Volumes::read`], or the default where the location is out of reach.
    pub volumes: Volumes,
}

/// What would become of one item.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviewItem {
    /// `apps/v1/Deployment`.
    pub kind: String,
    /// The namespace it would go into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// What would become of it.
    #[serde(flatten)]
    pub verdict: PreviewVerdict,
}

/// What would become of an item.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "verdict")]
pub enum PreviewVerdict {
    /// It is not there, and would be created.
    Create,
    /// It is there, and the same.
    Equal,
    /// It is there and differs.
    Differ {
        /// The merge patch from what is there to what would be there.
        difference: Value,
        /// Whether the restore would change it; otherwise it would be left as it is.
        updated: bool,
    },
    /// It would be left out.
    Skip {
        /// The same stable reason as in a run.
        reason: String,
    },
    /// It could not be restored.
    Fail {
        /// The same stable reason as in a run.
        reason: String,
        /// For people.
        message: String,
    },
}

impl PreviewVerdict {
    fn word(&self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Equal => "equal",
            Self::Differ { .. } => "differ",
            Self::Skip { .. } => "skip",
            Self::Fail { .. } => "fail",
        }
    }
}

/// What a dry run found, beside the items.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// Items the plan selected.
    pub total: u64,
    /// Items the filters left out.
    pub excluded: u64,
    /// How many items have each verdict: `create`, `equal`, `differ`, `skip`, `fail`.
    pub counts: BTreeMap<&'static str, u64>,
    /// Entries of the archive that are damaged.
    pub damaged: Vec<String>,
    /// Namespaces that objects go into and that are not there; a restore makes them.
    pub missing_namespaces: BTreeSet<String>,
    /// Kinds that are not served and whose definition is not restored either: their objects would fail.
    pub missing_kinds: BTreeSet<String>,
    /// Storage classes that claims or volumes name and that are neither there nor restored: volumes would stay pending.
    pub missing_storage_classes: BTreeSet<String>,
    /// Items that are not in the plan and would be restored because others need them.
    pub additional: BTreeSet<String>,
    /// Items that others need and that are not in the backup.
    pub missing_additional: BTreeSet<String>,
    /// What the caller may not do, as `create deployments.apps in namespace shop`.
    pub not_allowed: BTreeSet<String>,
}

/// Looks what a restore would do. Calls `on_item` once for each item of the plan, in no particular order within a resource.
///
/// `archive` is the tarball as it lies in the location, packed; it is read once, on a thread of its own. `scratch` takes the
/// spool, which goes when this ends.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind but the reading thread, which ends with its next read.
pub async fn preview(
    request: PreviewRequest,
    archive: impl Read + Send + 'static,
    scratch: &Path,
    task: &Task,
    mut on_item: impl FnMut(PreviewItem),
) -> Result<Preview, Error> {
    let (look, plan, damaged) = Look::prepare(request, archive, scratch, task).await?;
    let items = task.meter(Unit::Items);
    items.set_total(Total::Final(plan.spool.len() as u64));
    let mut found = Preview { total: plan.total(), excluded: plan.excluded, damaged, ..Preview::default() };
    // One resource after the other: what is decided about volumes counts for their claims.
    for (_, range) in plan.spool.resources() {
        let rows = stream::iter(range).map(|row| look.item(&plan.spool, row, task));
        let mut rows = std::pin::pin!(rows.buffer_unordered(AT_ONCE));
        while let Some(looked) = rows.next().await {
            let looked = looked?;
            *found.counts.entry(looked.item.verdict.word()).or_default() += 1;
            look.note(&mut found, &looked, &plan)?;
            items.add(1);
            on_item(looked.item);
        }
    }
    look.find_missing(&mut found, &plan, task).await?;
    look.find_not_allowed(&mut found, &plan, task).await?;
    Ok(found)
}

/// What does not change while items are looked at.
struct Look {
    cluster: Cluster,
    origin: Origin,
    raw: Value,
    selecting: Arc<Selecting>,
    actions: Actions,
    resources: Vec<Resource>,
    modifiers: Option<ResourceModifiers>,
    volumes: Volumes,
    existing: ExistingPolicy,
}

/// An item that was looked at.
struct Looked {
    item: PreviewItem,
    additional: Vec<Identifier>,
    storage_classes: Vec<String>,
}

impl Look {
    async fn prepare(
        request: PreviewRequest,
        archive: impl Read + Send + 'static,
        scratch: &Path,
        task: &Task,
    ) -> Result<(Self, RestorePlan, Vec<String>), Error> {
        let PreviewRequest { cluster, restore, policies, modifiers, volumes } = request;
        let discovered = Patience::default().run(task, || cluster.discover()).await?;
        let selecting = Arc::new(Selecting::for_restore(&restore.spec, policies.as_ref(), &discovered.resources)?);
        let hooks = Arc::new(RestoreHooks::new(&restore.spec)?);
        let mut actions = Actions::default();
        let home = restore.namespace().unwrap_or_default();
        let surroundings = Surroundings { cluster: &cluster, home: &home, restore: &restore, hooks };
        register_built_ins(&mut actions, &surroundings, selecting.catalog()).await?;
        let (plan, damaged) = read_plan(archive, &selecting, &actions, scratch).await?;
        let existing = match restore.spec.existing_resource_policy.as_deref() {
            Some("update") => ExistingPolicy::Update,
            _ => ExistingPolicy::None,
        };
        let origin = Origin {
            restore: restore.name_any(),
            created: jiff::Timestamp::MAX,
            backup: restore.spec.backup_name.clone().unwrap_or_default(),
            namespaces: restore.spec.namespace_mapping.clone(),
        };
        let (raw, resources) = (json!(restore), discovered.resources);
        let look = Self { cluster, origin, raw, selecting, actions, resources, modifiers, volumes, existing };
        Ok((look, plan, damaged))
    }

    async fn item(&self, spool: &SealedSpool, row: usize, task: &Task) -> Result<Looked, Error> {
        let spooled = spool.read(row).map_err(|source| Error::Archive { name: "spool".into(), source })?;
        let mut additional = Vec::new();
        let object: Value = match serde_json::from_slice(&spooled.json) {
            Ok(object) => object,
            Err(error) => {
                return Ok(self.looked(&spooled, &Value::Null, fail("Unreadable", error.to_string()), additional));
            }
        };
        let verdict = self.verdict(&spooled, &object, &mut additional, task).await?;
        Ok(self.looked(&spooled, &object, verdict, additional))
    }

    fn looked(
        &self,
        spooled: &SpooledObject,
        object: &Value,
        verdict: PreviewVerdict,
        additional: Vec<Identifier>,
    ) -> Looked {
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
        Looked { item, additional, storage_classes: storage_classes(object) }
    }

    async fn verdict(
        &self,
        spooled: &SpooledObject,
        from_backup: &Value,
        additional: &mut Vec<Identifier>,
        task: &Task,
    ) -> Result<PreviewVerdict, Error> {
        let resource = spooled.group_resource.as_str();
        if let Some(reason) = finished(resource, from_backup) {
            return Ok(skip(reason));
        }
        if resource == NAMESPACES {
            let path = format!("/api/v1/namespaces/{}", self.origin.target(&spooled.name));
            let there = self.read(&path, task).await?.is_some();
            return Ok(if there { PreviewVerdict::Equal } else { PreviewVerdict::Create });
        }
        let mut object = from_backup.clone();
        if resource == "persistentvolumes" {
            match self.volumes.decide(&object) {
                Decision::AsItIs => release_volume(&mut object, &self.origin),
                Decision::MadeAnew(_) => {
                    self.volumes.make_anew(&spooled.name);
                    return Ok(skip("WillBeProvisioned"));
                }
                // As far as anybody can tell without asking the plugin.
                Decision::FromSnapshot => {
                    let path = format!("/api/v1/persistentvolumes/{}", spooled.name);
                    if self.read(&path, task).await?.is_none() {
                        return Ok(PreviewVerdict::Create);
                    }
                    release_volume(&mut object, &self.origin);
                }
            }
        }
        strip(&mut object);
        let mut object = match self.act(resource, object, from_backup, additional).await {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(skip("SkippedByAction")),
            Err(problem) => return Ok(fail("ActionFailed", problem)),
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

    async fn act(
        &self,
        resource: &str,
        mut object: Value,
        from_backup: &Value,
        additional: &mut Vec<Identifier>,
    ) -> Result<Option<Value>, String> {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let namespace = namespace.map(|namespace| self.origin.target(namespace).to_owned());
        let labels = object.pointer("/metadata/labels").cloned().unwrap_or_default();
        for (name, action) in self.actions.applying(resource, namespace.as_deref(), &labels) {
            let input = Input { item: object, from_backup, restore: &self.raw };
            let output = action.execute(input).await.map_err(|problem| format!("item action {name}: {problem}"))?;
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
            address(object, &self.origin);
            object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
        }
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let plural = resource.split('.').next().unwrap_or_default();
        let collection = collection_path(text("/apiVersion").unwrap_or_default(), plural, text("/metadata/namespace"));
        let path = format!("{collection}/{}", text("/metadata/name").unwrap_or_default());
        let Some(there) = self.read(&path, task).await? else { return Ok(PreviewVerdict::Create) };
        Ok(match judge(&there, &object, &original, &self.origin) {
            Existing::Ours | Existing::Equal => PreviewVerdict::Equal,
            Existing::Different => self.difference(resource, &there, &object, &original),
        })
    }

    fn difference(&self, resource: &str, there: &Value, object: &Value, original: &Value) -> PreviewVerdict {
        let merged = resource == "serviceaccounts";
        let patch = if merged { merge_account(there, object) } else { update(there, object, original) };
        match patch {
            None => PreviewVerdict::Equal,
            Some(mut difference) => {
                forget_marks(&mut difference);
                PreviewVerdict::Differ { difference, updated: merged || self.existing == ExistingPolicy::Update }
            }
        }
    }

    async fn read(&self, path: &str, task: &Task) -> Result<Option<Value>, Error> {
        match Patience::default().run(task, || self.cluster.get(path)).await {
            Ok(found) => Ok(found.and_then(|bytes| serde_json::from_slice(&bytes).ok())),
            // Whether it is there cannot be known; that it may not be read is said elsewhere.
            Err(error) if error.code() == Some(403) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes what one item says about the whole.
    fn note(&self, found: &mut Preview, looked: &Looked, plan: &RestorePlan) -> Result<(), Error> {
        found.missing_storage_classes.extend(looked.storage_classes.iter().cloned());
        found.missing_namespaces.extend(looked.item.namespace.clone());
        let broken = |source| Error::Archive { name: "spool".into(), source };
        for wanted in &looked.additional {
            let (resource, namespace) = (wanted.group_resource.as_str(), wanted.namespace.as_deref());
            if plan.spool.find(resource, namespace, &wanted.name).map_err(broken)?.is_some() {
                continue;
            }
            let known = plan.reserve.find(resource, namespace, &wanted.name).map_err(broken)?.is_some();
            let admitted = self.selecting.restores_additional(resource, namespace, &wanted.name);
            match (known, admitted) {
                (true, true) => drop(found.additional.insert(wanted.to_string())),
                (true, false) => {}
                (false, _) => drop(found.missing_additional.insert(wanted.to_string())),
            }
        }
        Ok(())
    }

    /// Of what was noted as needed, leaves what is not there.
    async fn find_missing(&self, found: &mut Preview, plan: &RestorePlan, task: &Task) -> Result<(), Error> {
        for name in std::mem::take(&mut found.missing_namespaces) {
            if self.read(&format!("/api/v1/namespaces/{name}"), task).await?.is_none() {
                found.missing_namespaces.insert(name);
            }
        }
        let broken = |source| Error::Archive { name: "spool".into(), source };
        for name in std::mem::take(&mut found.missing_storage_classes) {
            let restored = plan.spool.find("storageclasses.storage.k8s.io", None, &name).map_err(broken)?.is_some();
            let path = format!("/apis/storage.k8s.io/v1/storageclasses/{name}");
            if !restored && self.read(&path, task).await?.is_none() {
                found.missing_storage_classes.insert(name);
            }
        }
        for (resource, _) in plan.spool.resources() {
            let definitions = "customresourcedefinitions.apiextensions.k8s.io";
            let restored = plan.spool.find(definitions, None, resource).map_err(broken)?.is_some();
            if !restored && !self.resources.iter().any(|served| served.group_resource() == resource) {
                found.missing_kinds.insert(resource.to_owned());
            }
        }
        Ok(())
    }

    /// Asks whether the caller may create what is planned: for all namespaces at once, and one by one where not.
    async fn find_not_allowed(&self, found: &mut Preview, plan: &RestorePlan, task: &Task) -> Result<(), Error> {
        for (resource, range) in plan.spool.resources() {
            if self.may_create(resource, None, task).await? {
                continue;
            }
            let rows = range.filter_map(|row| plan.spool.row(row));
            let namespaces: BTreeSet<Option<&str>> = rows.map(|row| row.namespace).collect();
            for namespace in namespaces {
                let target = namespace.map(|namespace| self.origin.target(namespace));
                let place = target.map(|target| format!(" in namespace {target}")).unwrap_or_default();
                if target.is_none() || !self.may_create(resource, target, task).await? {
                    found.not_allowed.insert(format!("create {resource}{place}"));
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
        let ask = || async {
            let answer = api.create(&PostParams::default(), &review).await;
            answer.map_err(|error| Error::api(format!("ask whether {resource} may be created"), error))
        };
        match Patience::default().run(task, ask).await {
            Ok(answer) => Ok(answer.status.is_some_and(|status| status.allowed)),
            // A cluster without authorization allows everything.
            Err(error) if error.code() == Some(404) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

async fn read_plan(
    archive: impl Read + Send + 'static,
    selecting: &Arc<Selecting>,
    actions: &Actions,
    scratch: &Path,
) -> Result<(RestorePlan, Vec<String>), Error> {
    let (selecting, keep, scratch) = (Arc::clone(selecting), Keep::for_actions(actions), scratch.to_owned());
    let reading = tokio::task::spawn_blocking(move || {
        let recorder = Recorder::create(&scratch)?;
        let plan = read_archive(archive, &selecting, &keep, &scratch, &recorder);
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

/// The classes that an object names.
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

/// The labels that every restore puts on objects are no difference that anybody cares for.
fn forget_marks(difference: &mut Value) {
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
    fn an_item_is_written_with_its_verdict_beside_its_name() {
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
    fn the_labels_of_the_restore_are_no_difference() {
        let mut difference = json!({"metadata": {"labels": {"velero.io/restore-name": "r", "velero.io/backup-name": "b"}}, "data": {"k": "v"}});
        forget_marks(&mut difference);
        assert_eq!(difference, json!({"data": {"k": "v"}}));
    }

    #[test]
    fn classes_are_found_where_they_are_named() {
        let set = json!({"kind": "StatefulSet", "spec": {"volumeClaimTemplates": [{"spec": {"storageClassName": "fast"}}, {"spec": {}}]}});
        assert_eq!(storage_classes(&set), ["fast"]);
        assert!(
            storage_classes(&json!({"kind": "PersistentVolumeClaim", "spec": {"storageClassName": ""}})).is_empty()
        );
    }
}
