//! The expected outcome of one item: the steps of a restore, without a write.

use plimsoll_archive::spool::{SealedSpool, SpooledObject};
use plimsoll_progress::Task;
use serde::Serialize;
use serde_json::Value;

use super::missing::storage_classes;
use super::{PreviewContext, PreviewedItem};
use crate::Error;
use crate::cluster::collection_path;
use crate::restore::action::{ItemId, RestoreActionInput};
use crate::restore::backup_volumes::{VolumeDecision, release_volume};
use crate::restore::existing_object::{
    ExistingObject, ExistingPolicy, compare_existing, service_account_patch, update_patch,
};
use crate::restore::item::{set_namespace_and_labels, skip_reason, strip};
use crate::restore::namespaces::NAMESPACES;

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
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Equal => "equal",
            Self::Differ { .. } => "differ",
            Self::Skip { .. } => "skip",
            Self::Fail { .. } => "fail",
        }
    }
}

impl PreviewContext {
    pub(super) async fn item(&self, spool: &SealedSpool, row: usize, task: &Task) -> Result<PreviewedItem, Error> {
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
}

fn skip(reason: &str) -> PreviewVerdict {
    PreviewVerdict::Skip { reason: reason.to_owned() }
}

fn fail(reason: &str, message: String) -> PreviewVerdict {
    PreviewVerdict::Fail { reason: reason.to_owned(), message }
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
    use serde_json::json;

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
}
