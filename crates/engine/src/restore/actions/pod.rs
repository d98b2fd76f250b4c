//! Pods: what belongs to the node and the token they had, and the objects they cannot run without.

use serde_json::Value;

use super::super::action::{Adds, Identifier};
use super::{Said, list_at, map_at, text};

const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";
const CLAIMS: &str = "persistentvolumeclaims";

pub(super) const ADDS: Adds = Adds::These(&[PRIORITY_CLASSES]);
pub(super) const ADDS_CLAIMS: Adds = Adds::These(&[CLAIMS]);

pub(super) fn act(item: &mut Value, _: &Value) -> Said {
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
    let additional = (!class.is_empty()).then(|| Identifier::cluster(PRIORITY_CLASSES, class));
    Said { additional: additional.into_iter().collect(), skip: false }
}

/// Tokens of service accounts are made anew under another name.
fn drop_named(list: Option<&mut Value>, prefix: &str) {
    if let Some(list) = list.and_then(Value::as_array_mut) {
        list.retain(|entry| !text(entry, "/name").starts_with(prefix));
    }
}

pub(super) fn add_claims(item: &mut Value, _: &Value) -> Said {
    let namespace = text(item, "/metadata/namespace");
    let volumes = item.pointer("/spec/volumes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let claims = volumes.iter().map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
    let additional =
        claims.filter(|claim| !claim.is_empty()).map(|claim| Identifier::namespaced(CLAIMS, namespace, claim));
    Said { additional: additional.collect(), skip: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_loses_its_node_its_priority_and_its_token() {
        let mounts = || json!([{"name": "data"}, {"name": "robot-token-abcde"}]);
        let mut pod = json!({"spec": {
            "nodeName": "n", "priority": 5, "serviceAccountName": "robot", "volumes": mounts(),
            "containers": [{"name": "a", "volumeMounts": mounts()}, {"name": "b"}],
            "initContainers": [{"name": "c", "volumeMounts": mounts()}],
        }});
        let said = act(&mut pod, &Value::Null);
        let left = json!([{"name": "data"}]);
        assert_eq!(
            pod,
            json!({"spec": {
                "serviceAccountName": "robot", "volumes": left,
                "containers": [{"name": "a", "volumeMounts": left}, {"name": "b"}],
                "initContainers": [{"name": "c", "volumeMounts": left}],
            }})
        );
        assert_eq!(said, Said::default());
    }

    #[test]
    fn a_priority_class_is_restored_before_its_pod() {
        let mut pod = json!({"spec": {"priorityClassName": "high", "containers": []}});
        assert_eq!(act(&mut pod, &Value::Null).additional, [Identifier::cluster(PRIORITY_CLASSES, "high")]);
    }

    #[test]
    fn claims_are_restored_before_the_pod_that_mounts_them() {
        let mut pod = json!({"metadata": {"namespace": "ns"}, "spec": {"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "one"}}, {"name": "b", "emptyDir": {}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "two"}}]}});
        let said = add_claims(&mut pod, &Value::Null);
        assert_eq!(said.additional, ["one", "two"].map(|name| Identifier::namespaced(CLAIMS, "ns", name)));
    }
}
