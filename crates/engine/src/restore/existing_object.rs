//! Objects that exist already: comparison with the backup, and patches to update them.

use jiff::Timestamp;
use plimsoll_api::labels;
use serde_json::{Map, Value, json};

use super::item::RestoreOrigin;

/// `existingResourcePolicy`: what happens to existing objects that differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExistingPolicy {
    /// Existing objects are not changed.
    #[default]
    None,
    /// Existing objects are updated.
    Update,
}

/// The result of the comparison of an existing object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExistingObject {
    /// Created by this restore: in an earlier attempt, or the response was lost.
    CreatedByRestore,
    /// Equal to the object to create, or to the object of the backup.
    Equal,
    /// Created by others, and different.
    Different,
}

/// Compares an existing object with the one to create. `original` is the object of the backup before actions removed fields
/// that the cluster sets: an object that still has these fields is equal too.
pub(super) fn compare_existing(
    existing: &Value,
    wanted: &Value,
    original: &Value,
    origin: &RestoreOrigin,
) -> ExistingObject {
    let label =
        existing.pointer("/metadata/labels").and_then(|all| all.get(labels::RESTORE_NAME)).and_then(Value::as_str);
    let created = existing.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    let created = created.and_then(|text| text.parse::<Timestamp>().ok());
    if label == Some(&labels::valid_name(&origin.restore)) && created.is_some_and(|at| at >= origin.created) {
        return ExistingObject::CreatedByRestore;
    }
    let existing = comparable(existing);
    if existing == comparable(wanted) || existing == comparable(original) {
        ExistingObject::Equal
    } else {
        ExistingObject::Different
    }
}

const COMPARED_METADATA: [&str; 5] = ["name", "namespace", "labels", "annotations", "finalizers"];

/// An object without the fields that the API server and restores set.
pub(super) fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| COMPARED_METADATA.contains(&field.as_str()));
        if let Some(all) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            all.remove(labels::BACKUP_NAME);
            all.remove(labels::RESTORE_NAME);
        }
        metadata.retain(|_, value| !is_empty(value));
    }
    object
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        other => other.is_null(),
    }
}

/// The merge patch from the existing to the wanted object, with the labels of the restore. Fields that actions removed because
/// the cluster sets them are not changed.
pub(super) fn update_patch(existing: &Value, wanted: &Value, original: &Value) -> Option<Value> {
    let (existing, bare) = (comparable(existing), comparable(wanted));
    let mut patch = difference(&existing, &bare, original).unwrap_or_else(|| json!({}));
    add_restore_labels(&mut patch, wanted);
    Some(patch).filter(|patch| patch.as_object().is_some_and(|patch| !patch.is_empty()))
}

/// The merge patch that sets only the labels of the restore.
pub(super) fn restore_labels_patch(wanted: &Value) -> Value {
    let mut patch = json!({});
    add_restore_labels(&mut patch, wanted);
    patch
}

fn add_restore_labels(patch: &mut Value, wanted: &Value) {
    let all = wanted.pointer("/metadata/labels");
    for key in [labels::BACKUP_NAME, labels::RESTORE_NAME] {
        if let Some(value) = all.and_then(|all| all.get(key)) {
            patch["metadata"]["labels"][key] = value.clone();
        }
    }
}

/// The merge patch from one value to another; `None` if they are equal. A field that `original` has and `to` has not was
/// removed by an action, and is not changed.
pub(super) fn difference(from: &Value, to: &Value, original: &Value) -> Option<Value> {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut patch = Map::new();
    for field in from.keys().filter(|field| !to.contains_key(*field)) {
        if original.get(field).is_none_or(Value::is_null) {
            patch.insert(field.clone(), Value::Null);
        }
    }
    for (field, wanted) in to {
        let changed = match from.get(field) {
            Some(found) => difference(found, wanted, original.get(field).unwrap_or(&Value::Null)),
            None => Some(wanted.clone()),
        };
        patch.extend(changed.map(|changed| (field.clone(), changed)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The merge patch that adds the entries of a service account of the backup. Clusters create accounts themselves, so they are
/// merged regardless of the policy. Existing entries are never replaced.
pub(super) fn service_account_patch(existing: &Value, wanted: &Value) -> Option<Value> {
    let mut patch = json!({});
    for field in ["secrets", "imagePullSecrets"] {
        let entries = |object: &Value| object.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        let (mut merged, found) = (entries(existing), entries(existing).len());
        for entry in entries(wanted) {
            if merged.iter().all(|known| known.get("name") != entry.get("name")) {
                merged.push(entry);
            }
        }
        if merged.len() > found {
            patch[field] = Value::Array(merged);
        }
    }
    for field in ["labels", "annotations"] {
        let entries = |object: &Value| object["metadata"][field].as_object().cloned().unwrap_or_default();
        let known = entries(existing);
        for (key, value) in entries(wanted).into_iter().filter(|(key, _)| !known.contains_key(key)) {
            patch["metadata"][field][key] = value;
        }
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn existing(label: &str, created: &str, data: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": data}, "metadata": {"name": "x", "uid": "1",
            "creationTimestamp": created, "labels": {"velero.io/restore-name": label}}})
    }

    fn config_map(data: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": data}, "metadata": {"name": "x",
            "labels": {"velero.io/restore-name": "r", "velero.io/backup-name": "b"}}})
    }

    #[test]
    fn an_object_with_the_label_that_is_not_older_was_created_by_this_restore() {
        let wanted = config_map("other");
        let compare_existing = |label, created| {
            compare_existing(&existing(label, created, "v"), &wanted, &Value::Null, &RestoreOrigin::fixture())
        };
        assert_eq!(compare_existing("r", "2026-01-02T00:00:00Z"), ExistingObject::CreatedByRestore);
        assert_eq!(
            compare_existing("r", "2026-01-01T23:59:59Z"),
            ExistingObject::Different,
            "an earlier restore of the same name"
        );
        assert_eq!(compare_existing("else", "2026-01-03T00:00:00Z"), ExistingObject::Different);
    }

    #[test]
    fn fields_of_the_api_server_are_not_compared() {
        let found = existing("else", "2026-01-03T00:00:00Z", "v");
        assert_eq!(
            compare_existing(&found, &config_map("v"), &Value::Null, &RestoreOrigin::fixture()),
            ExistingObject::Equal
        );
    }

    #[test]
    fn an_object_equal_to_the_backup_is_equal_though_actions_removed_fields() {
        let service = json!({"kind": "Service", "spec": {"clusterIP": "10.0.0.1"}, "metadata": {"name": "s"}});
        let wanted = json!({"kind": "Service", "spec": {}, "metadata": {"name": "s"}});
        assert_eq!(compare_existing(&service, &wanted, &service, &RestoreOrigin::fixture()), ExistingObject::Equal);
        let mut other = service.clone();
        other["spec"]["clusterIP"] = json!("10.0.0.2");
        assert_eq!(compare_existing(&other, &wanted, &service, &RestoreOrigin::fixture()), ExistingObject::Different);
    }

    #[test]
    fn an_update_keeps_fields_that_the_cluster_set() {
        let found = json!({"spec": {"clusterIP": "10.0.0.2", "type": "ClusterIP", "extra": 1, "ports": [1]}, "metadata": {"name": "s"}});
        let original = json!({"spec": {"clusterIP": "10.0.0.1", "type": "NodePort", "ports": [2]}});
        let wanted = json!({"spec": {"type": "NodePort", "ports": [2]}, "metadata": {"name": "s",
            "labels": {"velero.io/restore-name": "r", "velero.io/backup-name": "b"}}});
        assert_eq!(
            update_patch(&found, &wanted, &original).unwrap(),
            json!({"spec": {"type": "NodePort", "ports": [2], "extra": null},
                "metadata": {"labels": {"velero.io/restore-name": "r", "velero.io/backup-name": "b"}}})
        );
    }

    #[test]
    fn service_accounts_are_merged_without_replacing_entries() {
        let found =
            json!({"metadata": {"labels": {"a": "1"}, "annotations": {"x": "1"}}, "secrets": [{"name": "one"}]});
        let wanted = json!({"metadata": {"labels": {"a": "2", "b": "2"}, "annotations": {"x": "2"}},
            "secrets": [{"name": "one"}, {"name": "two"}], "imagePullSecrets": [{"name": "pull"}]});
        assert_eq!(
            service_account_patch(&found, &wanted).unwrap(),
            json!({"metadata": {"labels": {"b": "2"}}, "secrets": [{"name": "one"}, {"name": "two"}], "imagePullSecrets": [{"name": "pull"}]})
        );
        assert_eq!(service_account_patch(&wanted, &found), None, "nothing is missing");
    }
}
