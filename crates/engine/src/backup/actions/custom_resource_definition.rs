//! CustomResourceDefinitions of API version v1beta1 are backed up in that version, if the cluster serves it.

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use super::{BackupActionOutput, BackupItemAction};
use crate::Error;
use crate::cluster::Cluster;

const GROUP: &str = "/apis/apiextensions.k8s.io";

/// Registered only if v1beta1 is served: Kubernetes up to 1.21.
pub(super) struct CrdVersionAction {
    cluster: Cluster,
}

impl CrdVersionAction {
    pub(super) async fn if_served(cluster: &Cluster) -> Result<Option<Self>, Error> {
        let Some(group) = cluster.get(GROUP).await? else { return Ok(None) };
        let group: Value = serde_json::from_slice(&group).unwrap_or_default();
        Ok(serves_v1beta1(&group).then(|| Self { cluster: cluster.clone() }))
    }

    async fn read_old_version(&self, definition: &Value) -> Result<BackupActionOutput, Error> {
        if !needs_v1beta1(definition) {
            return Ok(BackupActionOutput::default());
        }
        let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let old = self.cluster.get(&format!("{GROUP}/v1beta1/customresourcedefinitions/{name}")).await?;
        Ok(BackupActionOutput {
            item: old.and_then(|bytes| serde_json::from_slice(&bytes).ok()),
            ..BackupActionOutput::default()
        })
    }
}

impl BackupItemAction for CrdVersionAction {
    fn execute<'a>(&'a self, item: &'a Value, _: &'a Value) -> BoxFuture<'a, Result<BackupActionOutput, Error>> {
        self.read_old_version(item).boxed()
    }
}

fn serves_v1beta1(group: &Value) -> bool {
    let versions = group["versions"].as_array().map_or(&[][..], Vec::as_slice);
    versions.iter().any(|version| version["version"] == "v1beta1")
}

/// Whether v1 would reject the definition: no schema, not structural, or unknown fields are preserved.
fn needs_v1beta1(definition: &Value) -> bool {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let one_without_schema = versions.len() == 1 && versions[0].get("schema").is_none_or(Value::is_null);
    let not_structural = conditions.iter().any(|c| c["type"] == "NonStructuralSchema" && c["status"] == "True");
    let keeps_unknown = definition.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true));
    definition["apiVersion"] == "apiextensions.k8s.io/v1" && (one_without_schema || not_structural || keeps_unknown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definitions_that_v1_would_reject_are_v1beta1() {
        let definition = |spec: Value, conditions: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "spec": spec, "status": {"conditions": conditions}});
        let schema = json!({"versions": [{"schema": {}}]});
        assert!(!needs_v1beta1(&definition(schema.clone(), json!([]))));
        assert!(needs_v1beta1(&definition(json!({"versions": [{"name": "v1"}]}), json!([]))));
        assert!(needs_v1beta1(&definition(schema.clone(), json!([{"type": "NonStructuralSchema", "status": "True"}]))));
        let mut keeping = schema;
        keeping["preserveUnknownFields"] = json!(true);
        assert!(needs_v1beta1(&definition(keeping, json!([]))));
    }

    #[test]
    fn v1beta1_is_found_in_the_versions_of_the_group() {
        assert!(serves_v1beta1(&json!({"versions": [{"version": "v1"}, {"version": "v1beta1"}]})));
        assert!(!serves_v1beta1(&json!({"versions": [{"version": "v1"}]})));
    }
}
