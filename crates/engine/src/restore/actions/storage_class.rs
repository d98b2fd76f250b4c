//! Storage classes: replaced by what a ConfigMap says. The new one must exist.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::super::action::{Adds, Input, Output, RestoreItemAction};
use super::{Surroundings, configuration, list_at, text};
use crate::Error;
use crate::cluster::Cluster;

pub(super) const RESOURCES: [&str; 3] = ["persistentvolumeclaims", "persistentvolumes", "statefulsets.apps"];

/// Old and new classes.
pub(super) struct StorageClasses {
    cluster: Cluster,
    classes: BTreeMap<String, String>,
    known: Mutex<HashMap<String, Arc<OnceCell<bool>>>>,
}

impl StorageClasses {
    pub(super) async fn read(surroundings: &Surroundings<'_>) -> Result<Option<Self>, Error> {
        let classes =
            configuration(surroundings.cluster.client(), surroundings.home, "velero.io/change-storage-class").await?;
        let cluster = surroundings.cluster.clone();
        Ok(classes.map(|classes| Self { cluster, classes, known: Mutex::default() }))
    }

    async fn act(&self, mut item: Value) -> Result<Value, String> {
        for (_, new) in changes(&mut item, &self.classes) {
            if !self.exists(&new).await? {
                return Err(format!("storage class {new}, which the ConfigMap maps to, does not exist"));
            }
        }
        Ok(item)
    }

    async fn exists(&self, class: &str) -> Result<bool, String> {
        let cell = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(known.entry(class.to_owned()).or_default())
        };
        let look = || async {
            let path = format!("/apis/storage.k8s.io/v1/storageclasses/{class}");
            self.cluster.get(&path).await.map(|found| found.is_some()).map_err(|error| error.to_string())
        };
        cell.get_or_try_init(look).await.copied()
    }
}

/// Makes the changes and says which.
fn changes(item: &mut Value, classes: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut made = Vec::new();
    let mut change = |spec: &mut Value| {
        let old = text(spec, "/storageClassName").to_owned();
        if let Some(new) = classes.get(&old).filter(|_| !old.is_empty()) {
            spec["storageClassName"] = json!(new);
            made.push((old, new.clone()));
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
    made
}

impl RestoreItemAction for StorageClasses {
    fn execute<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Result<Output, String>> {
        Box::pin(async move { self.act(input.item).await.map(Output::of) })
    }

    fn adds(&self) -> Adds {
        Adds::Nothing
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
            changes(&mut claim, &classes());
            assert_eq!(claim["spec"]["storageClassName"], expected);
        }
        let mut bare = json!({"kind": "PersistentVolumeClaim", "spec": {}});
        assert!(changes(&mut bare, &classes()).is_empty());
        assert_eq!(bare, json!({"kind": "PersistentVolumeClaim", "spec": {}}));
    }

    #[test]
    fn the_claims_of_a_stateful_set_are_changed() {
        let claim = |class: &str| json!({"spec": {"storageClassName": class}});
        let mut set = json!({"kind": "StatefulSet", "spec": {"volumeClaimTemplates": [claim("slow"), claim("other")]}});
        assert_eq!(changes(&mut set, &classes()), [("slow".to_owned(), "fast".to_owned())]);
        assert_eq!(set["spec"]["volumeClaimTemplates"], json!([claim("fast"), claim("other")]));
    }
}
