//! Definitions that were made for an older API version are kept in that version, where the cluster still serves it.

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use super::{Answer, BackupItemAction};
use crate::Error;
use crate::cluster::Cluster;

const GROUP: &str = "/apis/apiextensions.k8s.io";

/// Only registered where the old version is served: Kubernetes up to 1.21.
pub(super) struct OldDefinitions {
    cluster: Cluster,
}

impl OldDefinitions {
    pub(super) async fn where_served(cluster: &Cluster) -> Result<Option<Self>, Error> {
        let Some(group) = cluster.get(GROUP).await? else { return Ok(None) };
        let group: Value = serde_json::from_slice(&group).unwrap_or_default();
        Ok(serves_old_version(&group).then(|| Self { cluster: cluster.clone() }))
    }

    async fn look_at(&self, definition: &Value) -> Result<Answer, Error> {
        if !looks_old(definition) {
            return Ok(Answer::default());
        }
        let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let old = self.cluster.get(&format!("{GROUP}/v1beta1/customresourcedefinitions/{name}")).await?;
        Ok(Answer { item: old.and_then(|bytes| serde_json::from_slice(&bytes).ok()), ..Answer::default() })
    }
}

impl BackupItemAction for OldDefinitions {
    fn execute<'a>(&'a self, item: &'a Value, _: &'a Value) -> BoxFuture<'a, Result<Answer, Error>> {
        self.look_at(item).boxed()
    }
}

fn serves_old_version(group: &Value) -> bool {
    let versions = group["versions"].as_array().map_or(&[][..], Vec::as_slice);
    versions.iter().any(|version| version["version"] == "v1beta1")
}

/// One that the newer version would refuse to create: without a schema, not structural, or keeping unknown fields.
fn looks_old(definition: &Value) -> bool {
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
    fn a_definition_that_the_newer_version_would_refuse_looks_old() {
        let definition = |spec: Value, conditions: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "spec": spec, "status": {"conditions": conditions}});
        let schema = json!({"versions": [{"schema": {}}]});
        assert!(!looks_old(&definition(schema.clone(), json!([]))));
        assert!(looks_old(&definition(json!({"versions": [{"name": "v1"}]}), json!([]))));
        assert!(looks_old(&definition(schema.clone(), json!([{"type": "NonStructuralSchema", "status": "True"}]))));
        let mut keeping = schema;
        keeping["preserveUnknownFields"] = json!(true);
        assert!(looks_old(&definition(keeping, json!([]))));
    }

    #[test]
    fn only_a_cluster_that_serves_the_old_version_needs_this() {
        assert!(serves_old_version(&json!({"versions": [{"version": "v1"}, {"version": "v1beta1"}]})));
        assert!(!serves_old_version(&json!({"versions": [{"version": "v1"}]})));
    }
}
