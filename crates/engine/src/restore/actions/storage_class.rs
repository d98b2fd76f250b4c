//! Storage classes: replaced as configured in a ConfigMap. The new class must exist.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::super::action::{AdditionalResources, RestoreActionInput, RestoreActionOutput, RestoreItemAction};
use super::{ActionContext, configuration, list_at, text};
use crate::Error;
use crate::cluster::Cluster;

pub(super) const RESOURCES: [&str; 3] = ["persistentvolumeclaims", "persistentvolumes", "statefulsets.apps"];

/// Replaces storage classes.
pub(super) struct StorageClasses {
    cluster: Cluster,
    classes: BTreeMap<String, String>,
    existing: Mutex<HashMap<String, Arc<OnceCell<bool>>>>,
}

impl StorageClasses {
    pub(super) async fn read(context: &ActionContext<'_>) -> Result<Option<Self>, Error> {
        let classes =
            configuration(context.cluster.client(), context.namespace, "velero.io/change-storage-class").await?;
        let cluster = context.cluster.clone();
        Ok(classes.map(|classes| Self { cluster, classes, existing: Mutex::default() }))
    }

    async fn apply(&self, mut item: Value) -> Result<Value, String> {
        for (_, new) in replace_classes(&mut item, &self.classes) {
            if !self.exists(&new).await? {
                return Err(format!("storage class {new} of the ConfigMap does not exist"));
            }
        }
        Ok(item)
    }

    async fn exists(&self, class: &str) -> Result<bool, String> {
        let cell = {
            let mut existing = self.existing.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(existing.entry(class.to_owned()).or_default())
        };
        let read = || async {
            let path = format!("/apis/storage.k8s.io/v1/storageclasses/{class}");
            self.cluster.get(&path).await.map(|found| found.is_some()).map_err(|error| error.to_string())
        };
        cell.get_or_try_init(read).await.copied()
    }
}

/// Replaces the classes of an item. Returns the replacements.
fn replace_classes(item: &mut Value, classes: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut replaced = Vec::new();
    let mut change = |spec: &mut Value| {
        let old = text(spec, "/storageClassName").to_owned();
        if let Some(new) = classes.get(&old).filter(|_| !old.is_empty()) {
            spec["storageClassName"] = json!(new);
            replaced.push((old, new.clone()));
        }
    };
    if text(item, "/kind") == "StatefulSet" {
        list_at(item, "/spec/volumeClaimTemplates")
            .iter_mut()
            .filter_map(|claim| claim.get_mut("spec"))
            .for_each(change);
    } else if let Some(spec) = item.get_mut("spec") {
        change(spec);
    }
    replaced
}

impl RestoreItemAction for StorageClasses {
    fn execute<'a>(&'a self, input: RestoreActionInput<'a>) -> BoxFuture<'a, Result<RestoreActionOutput, String>> {
        Box::pin(async move { self.apply(input.item).await.map(RestoreActionOutput::of) })
    }

    fn additional_resources(&self) -> AdditionalResources {
        AdditionalResources::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes() -> BTreeMap<String, String> {
        BTreeMap::from([("slow".to_owned(), "fast".to_owned())])
    }

    #[test]
    fn a_mapped_class_is_replaced_and_others_stay() {
        for (class, expected) in [("slow", "fast"), ("other", "other")] {
            let mut claim = json!({"kind": "PersistentVolumeClaim", "spec": {"storageClassName": class}});
            replace_classes(&mut claim, &classes());
            assert_eq!(claim["spec"]["storageClassName"], expected);
        }
        let mut bare = json!({"kind": "PersistentVolumeClaim", "spec": {}});
        assert!(replace_classes(&mut bare, &classes()).is_empty());
        assert_eq!(bare, json!({"kind": "PersistentVolumeClaim", "spec": {}}));
    }

    #[test]
    fn claim_templates_of_stateful_sets_are_changed() {
        let claim = |class: &str| json!({"spec": {"storageClassName": class}});
        let mut set = json!({"kind": "StatefulSet", "spec": {"volumeClaimTemplates": [claim("slow"), claim("other")]}});
        assert_eq!(replace_classes(&mut set, &classes()), [("slow".to_owned(), "fast".to_owned())]);
        assert_eq!(set["spec"]["volumeClaimTemplates"], json!([claim("fast"), claim("other")]));
    }
}
