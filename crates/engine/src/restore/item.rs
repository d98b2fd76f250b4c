//! One object on its way back: what is taken off and what is put on.

use std::collections::BTreeMap;

use jiff::Timestamp;
use plimsoll_api::labels;
use serde_json::{Map, Value, json};

/// Whose restore this is, for the objects it makes.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The restore's name.
    pub restore: String,
    /// When the Restore was created: nothing older can be its work.
    pub created: Timestamp,
    /// The backup's name.
    pub backup: String,
    /// From namespace in the backup to namespace in the cluster.
    pub namespaces: BTreeMap<String, String>,
}

impl Origin {
    /// Where objects of a namespace go.
    pub fn target<'a>(&'a self, namespace: &'a str) -> &'a str {
        self.namespaces.get(namespace).map_or(namespace, String::as_str)
    }
}

/// Fields that belong to the object that was, not to the one that will be.
const STALE_METADATA: [&str; 9] = [
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

/// Takes off an object what belonged to its old self. Returns the status it had.
pub(super) fn strip(object: &mut Value) -> Option<Value> {
    let fields = object.as_object_mut()?;
    let status = fields.remove("status");
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !STALE_METADATA.contains(&field.as_str()));
    }
    status.filter(|status| !status.is_null())
}

/// Puts an object into its new namespace and gives it the names of the restore and its backup.
pub(super) fn address(object: &mut Value, origin: &Origin) {
    let Some(fields) = object.as_object_mut() else { return };
    let Some(metadata) = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut() else { return };
    if let Some(namespace) = metadata.get("namespace").and_then(Value::as_str).map(|ns| origin.target(ns).to_owned()) {
        metadata.insert("namespace".into(), json!(namespace));
    }
    mark(metadata, origin);
}

fn mark(metadata: &mut Map<String, Value>, origin: &Origin) {
    let marks = metadata.entry("labels").or_insert_with(|| json!({}));
    if !marks.is_object() {
        *marks = json!({});
    }
    marks[labels::BACKUP_NAME] = json!(labels::valid_name(&origin.backup));
    marks[labels::RESTORE_NAME] = json!(labels::valid_name(&origin.restore));
}

/// The namespace to create: of the one in the backup, if there is one, its labels, annotations and spec.
pub(super) fn namespace(name: &str, from_backup: Option<&Value>, origin: &Origin) -> Value {
    let mut object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    if let Some(known) = from_backup {
        for field in ["labels", "annotations"] {
            if let Some(value) = known.pointer(&format!("/metadata/{field}")).filter(|value| value.is_object()) {
                object["metadata"][field] = value.clone();
            }
        }
        if let Some(spec) = known.get("spec").filter(|spec| spec.is_object()) {
            object["spec"] = spec.clone();
        }
        // The API server writes the namespace's own name there.
        if let Some(labels) = object["metadata"].get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove("kubernetes.io/metadata.name");
        }
    }
    address(&mut object, origin);
    object
}

/// Why an object is not restored at all, if so.
pub(super) fn finished(group_resource: &str, object: &Value) -> Option<&'static str> {
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
        // The pod has Kubernetes make its own, and refuses one that is there without belonging to it.
        "persistentvolumeclaims" => {
            let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            let is_pod = |owner: &&Value| owner["kind"] == "Pod" && owner["controller"] == true;
            owners.into_iter().flatten().find(is_pod).map(|_| "EphemeralClaim")
        }
        "jobs.batch" => object.pointer("/status/completionTime").filter(|time| !time.is_null()).map(|_| "FinishedJob"),
        _ => None,
    }
}

/// What the object itself says about its status, over what the Restore says.
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

    fn origin() -> Origin {
        Origin {
            restore: "r".into(),
            created: "2026-01-02T00:00:00Z".parse().unwrap(),
            backup: "b".into(),
            namespaces: BTreeMap::from([("old".into(), "new".into())]),
        }
    }

    #[test]
    fn an_object_loses_its_identity_and_gets_the_restores_name() {
        let mut object = json!({"kind": "Pod", "status": {"phase": "Running"}, "metadata": {"name": "x", "namespace": "old",
            "uid": "1", "resourceVersion": "2", "ownerReferences": [{}], "finalizers": ["keep/me"]}});
        assert_eq!(strip(&mut object), Some(json!({"phase": "Running"})));
        address(&mut object, &origin());
        assert_eq!(
            object,
            json!({"kind": "Pod", "metadata": {"name": "x", "namespace": "new", "finalizers": ["keep/me"],
                "labels": {"velero.io/backup-name": "b", "velero.io/restore-name": "r"}}})
        );
    }

    #[test]
    fn a_namespace_keeps_labels_annotations_and_spec_and_nothing_else() {
        let known = json!({"metadata": {"name": "old", "uid": "1", "annotations": {"a": "1"},
            "labels": {"l": "1", "kubernetes.io/metadata.name": "old"}}, "spec": {"finalizers": ["kubernetes"]}, "status": {}});
        let made = namespace("new", Some(&known), &origin());
        assert_eq!(
            made["metadata"],
            json!({"name": "new", "annotations": {"a": "1"}, "labels": {"l": "1", "velero.io/backup-name": "b", "velero.io/restore-name": "r"}})
        );
        assert_eq!(made["spec"], json!({"finalizers": ["kubernetes"]}));
    }

    #[test]
    fn what_has_finished_is_not_started_again() {
        assert_eq!(finished("pods", &json!({"status": {"phase": "Succeeded"}})), Some("FinishedPod"));
        assert_eq!(finished("pods", &json!({"status": {"phase": "Running"}})), None);
        let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
        assert_eq!(finished("pods", &mirror), Some("MirrorPod"));
        assert_eq!(finished("jobs.batch", &json!({"status": {"completionTime": "t"}})), Some("FinishedJob"));
        assert_eq!(finished("jobs.batch", &json!({"status": {"completionTime": null}})), None);
    }

    #[test]
    fn an_annotation_decides_about_the_status_before_the_spec() {
        let said = |text: &str| json!({"metadata": {"annotations": {"velero.io/restore-status": text}}});
        for (object, by_spec, expected) in [
            (said("true"), false, true),
            (said(" False "), true, false),
            (said("nonsense"), true, true),
            (json!({}), false, false),
        ] {
            assert_eq!(restores_status(&object, by_spec), expected, "{object} {by_spec}");
        }
    }
}
