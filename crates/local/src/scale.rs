//! The `scale` subresource: an object's replicas, seen as an `autoscaling/v1` Scale.

use crate::{answer::Answer, failure::Failure, object::text};
use serde_json::{Value, json};

/// The Scale of an object.
pub(crate) fn of(object: &Value) -> Value {
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

/// The object as a Scale wants it.
pub(crate) fn apply(object: &Value, scale: &Value) -> Result<Value, Failure> {
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_u64);
    let replicas =
        replicas.ok_or_else(|| Failure::bad_request("spec.replicas of a Scale must be a number, not below zero"))?;
    let mut scaled = object.clone();
    scaled["spec"]["replicas"] = json!(replicas);
    let seen = text(scale, "/metadata/resourceVersion");
    if !seen.is_empty() {
        scaled["metadata"]["resourceVersion"] = json!(seen);
    }
    Ok(scaled)
}

/// An answer with an object as one with its Scale.
pub(crate) fn show(mut answer: Answer) -> Result<Answer, Failure> {
    let object = serde_json::from_slice(&answer.bytes)?;
    answer.bytes = of(&object).to_string().into();
    Ok(answer)
}
