//! Pods: adds their claims and priority class.

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use super::{BackupActionOutput, BackupItemAction, ItemId};
use crate::Error;

pub(super) struct PodAction;

impl BackupItemAction for PodAction {
    fn execute<'a>(&'a self, item: &'a Value, _: &'a Value) -> BoxFuture<'a, Result<BackupActionOutput, Error>> {
        futures::future::ready(Ok(BackupActionOutput {
            additional: additional_items(item),
            ..BackupActionOutput::default()
        }))
        .boxed()
    }
}

fn additional_items(pod: &Value) -> Vec<ItemId> {
    let namespace = pod.pointer("/metadata/namespace").and_then(Value::as_str);
    let class = pod.pointer("/spec/priorityClassName").and_then(Value::as_str).filter(|name| !name.is_empty());
    let class = class.map(|name| ItemId::new("priorityclasses.scheduling.k8s.io", None, name));
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let claims = volumes.iter().filter_map(|volume| volume.pointer("/persistentVolumeClaim/claimName")?.as_str());
    let claims = claims.map(|name| ItemId::new("persistentvolumeclaims", namespace, name));
    class.into_iter().chain(claims).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_adds_its_claims_and_its_priority_class() {
        let pod = json!({
            "metadata": {"namespace": "shop", "name": "db-0"},
            "spec": {
                "priorityClassName": "high",
                "volumes": [{"emptyDir": {}}, {"persistentVolumeClaim": {"claimName": "data"}}],
            },
        });
        let expected = [
            ItemId::new("priorityclasses.scheduling.k8s.io", None, "high"),
            ItemId::new("persistentvolumeclaims", Some("shop"), "data"),
        ];
        assert_eq!(additional_items(&pod), expected);
        assert_eq!(additional_items(&json!({"metadata": {"namespace": "shop"}})), []);
    }
}
