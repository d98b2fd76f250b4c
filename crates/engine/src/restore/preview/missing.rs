//! Objects that a restore needs and that neither exist nor are restored.

use plimsoll_progress::Task;
use serde_json::Value;

use super::{Preview, PreviewContext, PreviewedItem};
use crate::Error;
use crate::restore::plan::RestorePlan;

impl PreviewContext {
    /// Adds an item to the preview.
    pub(super) fn add_item(
        &self,
        found: &mut Preview,
        previewed: &PreviewedItem,
        plan: &RestorePlan,
    ) -> Result<(), Error> {
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
    pub(super) async fn find_missing(&self, found: &mut Preview, plan: &RestorePlan, task: &Task) -> Result<(), Error> {
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
}

/// The storage classes of an object.
pub(super) fn storage_classes(object: &Value) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn storage_classes_are_read_from_claims_and_templates() {
        let set = json!({"kind": "StatefulSet", "spec": {"volumeClaimTemplates": [{"spec": {"storageClassName": "fast"}}, {"spec": {}}]}});
        assert_eq!(storage_classes(&set), ["fast"]);
        assert!(
            storage_classes(&json!({"kind": "PersistentVolumeClaim", "spec": {"storageClassName": ""}})).is_empty()
        );
    }
}
