//! Admission of built-in kinds: defaults, validation and protected namespaces.

use crate::{
    definition,
    kind::Kind,
    object::{field, metadata, text},
    status_error::{StatusCause, StatusDetails, StatusError},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

/// Namespaces that always exist.
pub(crate) const PERMANENT_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Sets defaults in a new object.
pub(crate) fn on_create(kind: &Kind, object: &mut Value) {
    if kind.is_custom() {
        if kind.status {
            drop_status(object);
        }
        return;
    }
    if kind.status && kind.kind != "Node" {
        drop_status(object);
    }
    match kind.group_resource().as_str() {
        "namespaces" => default_namespace(object),
        "pods" | "persistentvolumeclaims" | "persistentvolumes" => {
            object["status"] = json!({"phase": "Pending"});
        }
        definition::RESOURCE => {
            definition::set_defaults(object);
            definition::establish(object);
            metadata(object).insert("finalizers".to_owned(), json!([definition::CLEANUP_FINALIZER]));
        }
        _ => {}
    }
    default(kind, object);
}

/// Sets defaults in a changed object.
pub(crate) fn on_update(kind: &Kind, object: &mut Value) {
    if kind.is(definition::RESOURCE) {
        definition::set_defaults(object);
        definition::establish(object);
    }
    if !kind.is_custom() {
        default(kind, object);
    }
}

/// All validation errors of an object except those of its metadata.
pub(crate) fn validate(kind: &Kind, object: &Value) -> Vec<StatusCause> {
    match kind.schema() {
        Some(schema) => schema.validate(object),
        None if kind.is(definition::RESOURCE) => definition::validate(object),
        None => Vec::new(),
    }
}

/// Rejects the deletion of protected namespaces.
pub(crate) fn check_deletion(kind: &Kind, name: &str) -> Result<(), StatusError> {
    if kind.is("namespaces") && PERMANENT_NAMESPACES[..3].contains(&name) {
        let object = StatusDetails { group: "", kind: "namespaces", name };
        return Err(StatusError::forbidden(object, "this namespace may not be deleted"));
    }
    Ok(())
}

fn drop_status(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
}

fn default_namespace(object: &mut Value) {
    let name = json!(text(object, "/metadata/name"));
    let mut labels = object.pointer_mut("/metadata/labels").map(Value::take).unwrap_or_default();
    if !labels.is_object() {
        labels = json!({});
    }
    labels["kubernetes.io/metadata.name"] = name;
    metadata(object).insert("labels".to_owned(), labels);
    field(object, "spec").insert("finalizers".to_owned(), json!(["kubernetes"]));
    object["status"] = json!({"phase": "Active"});
}

fn default(kind: &Kind, object: &mut Value) {
    match kind.group_resource().as_str() {
        "secrets" => default_secret(object),
        "services" => {
            field(object, "spec").entry("type").or_insert_with(|| json!("ClusterIP"));
        }
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "replicationcontrollers" => {
            field(object, "spec").entry("replicas").or_insert_with(|| json!(1));
            let strategy = if kind.kind == "Deployment" { "strategy" } else { "updateStrategy" };
            if matches!(kind.kind.as_str(), "Deployment" | "StatefulSet") {
                field(object, "spec").entry(strategy).or_insert_with(|| json!({"type": "RollingUpdate"}));
            }
        }
        _ => {}
    }
}

/// `stringData` is write-only: it is moved to `data`.
fn default_secret(object: &mut Value) {
    let plain = object.as_object_mut().and_then(|fields| fields.remove("stringData"));
    for (key, value) in plain.as_ref().and_then(Value::as_object).into_iter().flatten() {
        let encoded = BASE64_STANDARD.encode(value.as_str().unwrap_or_default());
        field(object, "data").insert(key.clone(), json!(encoded));
    }
    if text(object, "/type").is_empty() {
        object["type"] = json!("Opaque");
    }
}
