//! One object on its way back: what is taken off, what is put on, and what an object that is already there means.

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

/// Makes the object that is created from the one that was backed up.
pub fn prepare(object: &mut Value, origin: &Origin) {
    let Some(fields) = object.as_object_mut() else { return };
    fields.remove("status");
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { return };
    for field in STALE_METADATA {
        metadata.remove(field);
    }
    // The API server ignores managedFields in a create; its fieldManager parameter says who owns the fields.
    metadata.remove("managedFields");
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

/// Why an object is not restored at all, if so.
pub fn finished(group_resource: &str, object: &Value) -> Option<&'static str> {
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
        "jobs.batch" => object.pointer("/status/completionTime").map(|_| "FinishedJob"),
        _ => None,
    }
}

/// What an object that is already there means.
#[derive(Debug, PartialEq, Eq)]
pub enum Existing {
    /// Made by this restore: our own create, whose answer got lost, or an earlier attempt's.
    Ours,
    /// Equal to what we would have made.
    Equal,
    /// Somebody else's, and different.
    Different,
}

/// Compares what is there with what we would have made.
pub fn judge(there: &Value, wanted: &Value, origin: &Origin) -> Existing {
    let label = there.pointer("/metadata/labels").and_then(|all| all.get(labels::RESTORE_NAME)).and_then(Value::as_str);
    let created = there.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    let created = created.and_then(|text| text.parse::<Timestamp>().ok());
    if label == Some(&labels::valid_name(&origin.restore)) && created.is_some_and(|at| at >= origin.created) {
        return Existing::Ours;
    }
    if comparable(there) == comparable(wanted) { Existing::Equal } else { Existing::Different }
}

/// An object without what the API server and restores put on it.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| ["name", "namespace", "labels", "annotations"].contains(&field.as_str()));
        if let Some(all) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            all.remove(labels::BACKUP_NAME);
            all.remove(labels::RESTORE_NAME);
        }
        metadata.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    }
    object
}

/// The one manager that owned the object's fields, to be named as their owner again; ours if there were several.
pub fn field_manager(object: &Value) -> String {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut managers = entries.iter().filter(|entry| entry.get("subresource").is_none_or(|s| s == ""));
    match (managers.next(), managers.next()) {
        (Some(one), None) if one["operation"] == "Update" => one["manager"].as_str().unwrap_or("plimsoll").to_owned(),
        _ => "plimsoll".to_owned(),
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

    fn there(label: &str, created: &str, data: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": data}, "metadata": {"name": "x", "uid": "1",
            "creationTimestamp": created, "labels": {"velero.io/restore-name": label}}})
    }

    #[test]
    fn an_object_loses_its_identity_and_gets_the_restores_name() {
        let mut object = json!({"kind": "Pod", "status": {"phase": "Running"}, "metadata": {"name": "x", "namespace": "old",
            "uid": "1", "resourceVersion": "2", "ownerReferences": [{}], "managedFields": [], "finalizers": ["keep/me"]}});
        prepare(&mut object, &origin());
        assert_eq!(
            object,
            json!({"kind": "Pod", "metadata": {"name": "x", "namespace": "new", "finalizers": ["keep/me"],
                "labels": {"velero.io/backup-name": "b", "velero.io/restore-name": "r"}}})
        );
    }

    #[test]
    fn an_object_that_carries_our_name_and_is_not_older_is_our_own_work() {
        let wanted = json!({"data": {"k": "other"}});
        let judge = |label, created| judge(&there(label, created, "v"), &wanted, &origin());
        assert_eq!(judge("r", "2026-01-02T00:00:00Z"), Existing::Ours);
        assert_eq!(judge("r", "2026-01-01T23:59:59Z"), Existing::Different, "an earlier restore of the same name");
        assert_eq!(judge("else", "2026-01-03T00:00:00Z"), Existing::Different);
    }

    #[test]
    fn an_equal_object_is_known_as_equal_whatever_the_server_put_on_it() {
        let mut wanted =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}, "metadata": {"name": "x"}});
        mark(wanted["metadata"].as_object_mut().unwrap(), &origin());
        assert_eq!(judge(&there("else", "2026-01-03T00:00:00Z", "v"), &wanted, &origin()), Existing::Equal);
    }

    #[test]
    fn what_has_finished_is_not_started_again() {
        assert_eq!(finished("pods", &json!({"status": {"phase": "Succeeded"}})), Some("FinishedPod"));
        assert_eq!(finished("pods", &json!({"status": {"phase": "Running"}})), None);
        let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
        assert_eq!(finished("pods", &mirror), Some("MirrorPod"));
        assert_eq!(finished("jobs.batch", &json!({"status": {"completionTime": "t"}})), Some("FinishedJob"));
    }

    #[test]
    fn the_only_owner_of_the_fields_stays_their_owner() {
        let one = json!({"metadata": {"managedFields": [
            {"manager": "helm", "operation": "Update"}, {"manager": "kubelet", "operation": "Update", "subresource": "status"}]}});
        assert_eq!(field_manager(&one), "helm");
        let applied = json!({"metadata": {"managedFields": [{"manager": "kubectl", "operation": "Apply"}]}});
        assert_eq!(field_manager(&applied), "plimsoll");
    }
}
