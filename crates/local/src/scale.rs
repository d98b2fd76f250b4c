//! The `scale` subresource: the replicas of an object as an `autoscaling/v1` Scale.

use crate::{object::text, response::ApiResponse, status_error::StatusError};
use serde_json::{Value, json};

/// The Scale of an object.
pub(crate) fn from_object(object: &Value) -> Value {
    let selector = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let pairs =
        selector.into_iter().flatten().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let metadata = &object["metadata"];
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": object["spec"]["replicas"]},
        "status": {
            "replicas": object.pointer("/status/replicas").and_then(Value::as_i64).unwrap_or_default(),
            "selector": pairs.collect::<Vec<_>>().join(","),
        },
    })
}

/// The object with the replicas of a Scale.
pub(crate) fn apply(object: &Value, scale: &Value) -> Result<Value, StatusError> {
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_u64);
    let replicas = replicas
        .ok_or_else(|| StatusError::bad_request("spec.replicas of a Scale must be a number, not below zero"))?;
    let mut scaled = object.clone();
    scaled["spec"]["replicas"] = json!(replicas);
    let resource_version = text(scale, "/metadata/resourceVersion");
    if !resource_version.is_empty() {
        scaled["metadata"]["resourceVersion"] = json!(resource_version);
    }
    Ok(scaled)
}

/// Replaces the object in a response by its Scale.
pub(crate) fn to_scale(mut answer: ApiResponse) -> Result<ApiResponse, StatusError> {
    let object = serde_json::from_slice(&answer.bytes)?;
    answer.bytes = from_object(&object).to_string().into();
    Ok(answer)
}
