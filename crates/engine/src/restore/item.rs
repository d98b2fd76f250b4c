//! Changes to one object: removed and added fields.

use std::collections::BTreeMap;

use jiff::Timestamp;
use plimsoll_api::labels;
use serde_json::{Map, Value, json};

/// The restore and its namespace mapping, for the objects it creates.
#[derive(Clone, Debug)]
pub struct RestoreOrigin {
    /// Name of the restore.
    pub restore: String,
    /// Creation time of the Restore: it did not create older objects.
    pub created: Timestamp,
    /// Name of the backup.
    pub backup: String,
    /// Namespace mapping: from the backup to the cluster.
    pub namespaces: BTreeMap<String, String>,
}

impl RestoreOrigin {
    /// The target of a namespace.
    pub fn target<'a>(&'a self, namespace: &'a str) -> &'a str {
        self.namespaces.get(namespace).map_or(namespace, String::as_str)
    }
}

#[cfg(test)]
impl RestoreOrigin {
    /// The restore `r` of the backup `b`, without a namespace mapping.
    pub fn fixture() -> Self {
        let created = "2026-01-02T00:00:00Z".parse().unwrap();
        Self { restore: "r".into(), created, backup: "b".into(), namespaces: BTreeMap::new() }
    }

    /// With a mapping of one namespace.
    pub fn with_mapping(mut self, from: &str, to: &str) -> Self {
        self.namespaces.insert(from.into(), to.into());
        self
    }
}

/// Fields that are specific to the old object.
const IDENTITY_FIELDS: [&str; 9] = [
    "generateName",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
];

/// Removes the fields that are specific to the old object. Returns its status.
pub(super) fn strip(object: &mut Value) -> Option<Value> {
    let fields = object.as_object_mut()?;
    let status = fields.remove("status");
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !IDENTITY_FIELDS.contains(&field.as_str()));
    }
    status.filter(|status| !status.is_null())
}

/// Sets the target namespace and the labels of the restore and its backup.
pub(super) fn set_namespace_and_labels(object: &mut Value, origin: &RestoreOrigin) {
    let Some(fields) = object.as_object_mut() else { return };
    let Some(metadata) = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut() else { return };
    if let Some(namespace) = metadata.get("namespace").and_then(Value::as_str).map(|ns| origin.target(ns).to_owned()) {
        metadata.insert("namespace".into(), json!(namespace));
    }
    add_restore_labels(metadata, origin);
}

fn add_restore_labels(metadata: &mut Map<String, Value>, origin: &RestoreOrigin) {
    let all = metadata.entry("labels").or_insert_with(|| json!({}));
    if !all.is_object() {
        *all = json!({});
    }
    all[labels::BACKUP_NAME] = json!(labels::valid_name(&origin.backup));
    all[labels::RESTORE_NAME] = json!(labels::valid_name(&origin.restore));
}

/// The namespace to create, with labels, annotations and spec of the backup.
pub(super) fn namespace(name: &str, from_backup: Option<&Value>, origin: &RestoreOrigin) -> Value {
    let mut object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    if let Some(from_backup) = from_backup {
        for field in ["labels", "annotations"] {
            if let Some(value) = from_backup.pointer(&format!("/metadata/{field}")).filter(|value| value.is_object()) {
                object["metadata"][field] = value.clone();
            }
        }
        if let Some(spec) = from_backup.get("spec").filter(|spec| spec.is_object()) {
            object["spec"] = spec.clone();
        }
        // The API server sets this label.
        if let Some(labels) = object["metadata"].get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove("kubernetes.io/metadata.name");
        }
    }
    set_namespace_and_labels(&mut object, origin);
    object
}

/// The reason to skip an object, if there is one.
pub(super) fn skip_reason(group_resource: &str, object: &Value) -> Option<&'static str> {
    match group_resource {
        "pods" => {
            let phase = object.pointer("/status/phase").and_then(Value::as_str);
            let mirror = object.pointer("/metadata/annotations/kubernetes.io~1config.mirror");
            match (phase, mirror) {
                (_, Some(_)) => Some("MirrorPod"),
                (Some("Succeeded" | "Failed"), _) => Some("FinishedPod"),
                _ => None,
            }
        }
        // Kubernetes creates the claim for the pod, and rejects an existing claim that the pod does not own.
        "persistentvolumeclaims" => {
            let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            let is_pod = |owner: &&Value| owner["kind"] == "Pod" && owner["controller"] == true;
            owners.into_iter().flatten().find(is_pod).map(|_| "EphemeralClaim")
        }
        "jobs.batch" => object.pointer("/status/completionTime").filter(|time| !time.is_null()).map(|_| "FinishedJob"),
        _ => None,
    }
}

/// Whether the status is restored. The annotation of the object overrides the spec of the Restore.
pub(super) fn restores_status(object: &Value, by_spec: bool) -> bool {
    let annotation = object.pointer("/metadata/annotations/velero.io~1restore-status").and_then(Value::as_str);
    match annotation.map(|text| text.trim().to_ascii_lowercase()).as_deref() {
        Some("true") => true,
        Some("false") => false,
        _ => by_spec,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> RestoreOrigin {
        RestoreOrigin::fixture().with_mapping("old", "new")
    }

    #[test]
    fn identity_fields_are_removed_and_labels_added() {
        let mut object = json!({"kind": "Pod", "status": {"phase": "Running"}, "metadata": {"name": "x", "namespace": "old",
            "uid": "1", "resourceVersion": "2", "ownerReferences": [{}], "finalizers": ["keep/me"]}});
        assert_eq!(strip(&mut object), Some(json!({"phase": "Running"})));
        set_namespace_and_labels(&mut object, &origin());
        assert_eq!(
            object,
            json!({"kind": "Pod", "metadata": {"name": "x", "namespace": "new", "finalizers": ["keep/me"],
                "labels": {"velero.io/backup-name": "b", "velero.io/restore-name": "r"}}})
        );
    }

    #[test]
    fn a_namespace_keeps_labels_annotations_and_spec() {
        let from_backup = json!({"metadata": {"name": "old", "uid": "1", "annotations": {"a": "1"},
            "labels": {"l": "1", "kubernetes.io/metadata.name": "old"}}, "spec": {"finalizers": ["kubernetes"]}, "status": {}});
        let created = namespace("new", Some(&from_backup), &origin());
        assert_eq!(
            created["metadata"],
            json!({"name": "new", "annotations": {"a": "1"}, "labels": {"l": "1", "velero.io/backup-name": "b", "velero.io/restore-name": "r"}})
        );
        assert_eq!(created["spec"], json!({"finalizers": ["kubernetes"]}));
    }

    #[test]
    fn finished_objects_are_skipped() {
        assert_eq!(skip_reason("pods", &json!({"status": {"phase": "Succeeded"}})), Some("FinishedPod"));
        assert_eq!(skip_reason("pods", &json!({"status": {"phase": "Running"}})), None);
        let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
        assert_eq!(skip_reason("pods", &mirror), Some("MirrorPod"));
        assert_eq!(skip_reason("jobs.batch", &json!({"status": {"completionTime": "t"}})), Some("FinishedJob"));
        assert_eq!(skip_reason("jobs.batch", &json!({"status": {"completionTime": null}})), None);
    }

    #[test]
    fn the_annotation_overrides_the_spec() {
        let annotated = |text: &str| json!({"metadata": {"annotations": {"velero.io/restore-status": text}}});
        for (object, by_spec, expected) in [
            (annotated("true"), false, true),
            (annotated(" False "), true, false),
            (annotated("nonsense"), true, true),
            (json!({}), false, false),
        ] {
            assert_eq!(restores_status(&object, by_spec), expected, "{object} {by_spec}");
        }
    }
}
