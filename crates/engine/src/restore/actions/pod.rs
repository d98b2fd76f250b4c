//! Pods: removes node and token, and adds priority class and claims.

use serde_json::Value;

use super::super::action::{AdditionalResources, ItemId};
use super::{ActionEffect, list_at, map_at, text};

const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";
const CLAIMS: &str = "persistentvolumeclaims";

pub(super) const ADDS: AdditionalResources = AdditionalResources::Only(&[PRIORITY_CLASSES]);
pub(super) const ADDS_CLAIMS: AdditionalResources = AdditionalResources::Only(&[CLAIMS]);

pub(super) fn apply(item: &mut Value, _: &Value) -> ActionEffect {
    let token = format!("{}-token-", text(item, "/spec/serviceAccountName"));
    if let Some(spec) = map_at(item, "/spec") {
        spec.remove("nodeName");
        spec.remove("priority");
        drop_named(spec.get_mut("volumes"), &token);
    }
    for list in ["/spec/containers", "/spec/initContainers"] {
        for container in list_at(item, list) {
            drop_named(container.get_mut("volumeMounts"), &token);
        }
    }
    let class = text(item, "/spec/priorityClassName");
    let additional = (!class.is_empty()).then(|| ItemId::cluster(PRIORITY_CLASSES, class));
    ActionEffect { additional: additional.into_iter().collect(), skip: false }
}

/// Tokens of service accounts are created again with another name.
fn drop_named(list: Option<&mut Value>, prefix: &str) {
    if let Some(list) = list.and_then(Value::as_array_mut) {
        list.retain(|entry| !text(entry, "/name").starts_with(prefix));
    }
}

pub(super) fn add_claims(item: &mut Value, _: &Value) -> ActionEffect {
    let namespace = text(item, "/metadata/namespace");
    let volumes = item.pointer("/spec/volumes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let claims = volumes.iter().map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
    let additional = claims.filter(|claim| !claim.is_empty()).map(|claim| ItemId::namespaced(CLAIMS, namespace, claim));
    ActionEffect { additional: additional.collect(), skip: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn node_priority_and_token_are_removed() {
        let mounts = || json!([{"name": "data"}, {"name": "robot-token-abcde"}]);
        let mut pod = json!({"spec": {
            "nodeName": "n", "priority": 5, "serviceAccountName": "robot", "volumes": mounts(),
            "containers": [{"name": "a", "volumeMounts": mounts()}, {"name": "b"}],
            "initContainers": [{"name": "c", "volumeMounts": mounts()}],
        }});
        let effect = apply(&mut pod, &Value::Null);
        let left = json!([{"name": "data"}]);
        assert_eq!(
            pod,
            json!({"spec": {
                "serviceAccountName": "robot", "volumes": left,
                "containers": [{"name": "a", "volumeMounts": left}, {"name": "b"}],
                "initContainers": [{"name": "c", "volumeMounts": left}],
            }})
        );
        assert_eq!(effect, ActionEffect::default());
    }

    #[test]
    fn a_priority_class_is_restored_before_its_pod() {
        let mut pod = json!({"spec": {"priorityClassName": "high", "containers": []}});
        assert_eq!(apply(&mut pod, &Value::Null).additional, [ItemId::cluster(PRIORITY_CLASSES, "high")]);
    }

    #[test]
    fn claims_are_restored_before_the_pod_that_mounts_them() {
        let mut pod = json!({"metadata": {"namespace": "ns"}, "spec": {"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "one"}}, {"name": "b", "emptyDir": {}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "two"}}]}});
        let effect = add_claims(&mut pod, &Value::Null);
        assert_eq!(effect.additional, ["one", "two"].map(|name| ItemId::namespaced(CLAIMS, "ns", name)));
    }
}
