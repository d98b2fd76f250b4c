//! An object that is there already: whose it is, whether it is the same, and how it is changed into the one of the backup.

use jiff::Timestamp;
use plimsoll_api::labels;
use serde_json::{Map, Value, json};

use super::item::Origin;

/// What happens to objects that are there already and differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExistingPolicy {
    /// They are left as they are.
    #[default]
    None,
    /// They are changed into those of the backup.
    Update,
}

/// What an object that is already there means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Existing {
    /// Made by this restore: our own create, whose answer got lost, or an earlier attempt's.
    Ours,
    /// Equal to what we would have made, or to what was backed up.
    Equal,
    /// Somebody else's, and different.
    Different,
}

/// Compares what is there with what we would have made. `original` is the object of the backup before actions took off what a
/// cluster chooses by itself: an object that still has it all is equal too.
pub(super) fn judge(there: &Value, wanted: &Value, original: &Value, origin: &Origin) -> Existing {
    let label = there.pointer("/metadata/labels").and_then(|all| all.get(labels::RESTORE_NAME)).and_then(Value::as_str);
    let created = there.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    let created = created.and_then(|text| text.parse::<Timestamp>().ok());
    if label == Some(&labels::valid_name(&origin.restore)) && created.is_some_and(|at| at >= origin.created) {
        return Existing::Ours;
    }
    let there = comparable(there);
    if there == comparable(wanted) || there == comparable(original) { Existing::Equal } else { Existing::Different }
}

const COMPARED_METADATA: [&str; 5] = ["name", "namespace", "labels", "annotations", "finalizers"];

/// An object without what the API server and restores put on it.
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

/// The merge patch that turns what is there into what is wanted, with the restore's labels. What actions took off because a
/// cluster chooses it by itself stays as the cluster chose it.
pub(super) fn update(there: &Value, wanted: &Value, original: &Value) -> Option<Value> {
    let (there, bare) = (comparable(there), comparable(wanted));
    let mut patch = difference(&there, &bare, original).unwrap_or_else(|| json!({}));
    add_marks(&mut patch, wanted);
    Some(patch).filter(|patch| patch.as_object().is_some_and(|patch| !patch.is_empty()))
}

/// The merge patch that gives an object the restore's labels and nothing else.
pub(super) fn marks(wanted: &Value) -> Value {
    let mut patch = json!({});
    add_marks(&mut patch, wanted);
    patch
}

fn add_marks(patch: &mut Value, wanted: &Value) {
    let all = wanted.pointer("/metadata/labels");
    for mark in [labels::BACKUP_NAME, labels::RESTORE_NAME] {
        if let Some(value) = all.and_then(|all| all.get(mark)) {
            patch["metadata"]["labels"][mark] = value.clone();
        }
    }
}

/// The merge patch from one value to another; nothing if they are equal. A field that `original` has and `to` has not was taken
/// off on the way, and is left alone.
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

/// What a service account of the backup adds to the one that is there: a cluster makes accounts of its own, so they are merged
/// whatever the policy is. What is there is never replaced.
pub(super) fn merge_account(there: &Value, wanted: &Value) -> Option<Value> {
    let mut patch = json!({});
    for field in ["secrets", "imagePullSecrets"] {
        let entries = |object: &Value| object.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        let (mut merged, found) = (entries(there), entries(there).len());
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
        let known = entries(there);
        for (key, value) in entries(wanted).into_iter().filter(|(key, _)| !known.contains_key(key)) {
            patch["metadata"][field][key] = value;
        }
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn origin() -> Origin {
        Origin {
            restore: "r".into(),
            created: "2026-01-02T00:00:00Z".parse().unwrap(),
            backup: "b".into(),
            namespaces: BTreeMap::new(),
        }
    }

    fn there(label: &str, created: &str, data: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": data}, "metadata": {"name": "x", "uid": "1",
            "creationTimestamp": created, "labels": {"velero.io/restore-name": label}}})
    }

    fn config_map(data: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": data}, "metadata": {"name": "x",
            "labels": {"velero.io/restore-name": "r", "velero.io/backup-name": "b"}}})
    }

    #[test]
    fn an_object_that_carries_our_name_and_is_not_older_is_our_own_work() {
        let wanted = config_map("other");
        let judge = |label, created| judge(&there(label, created, "v"), &wanted, &Value::Null, &origin());
        assert_eq!(judge("r", "2026-01-02T00:00:00Z"), Existing::Ours);
        assert_eq!(judge("r", "2026-01-01T23:59:59Z"), Existing::Different, "an earlier restore of the same name");
        assert_eq!(judge("else", "2026-01-03T00:00:00Z"), Existing::Different);
    }

    #[test]
    fn an_equal_object_is_known_as_equal_whatever_the_server_put_on_it() {
        let found = there("else", "2026-01-03T00:00:00Z", "v");
        assert_eq!(judge(&found, &config_map("v"), &Value::Null, &origin()), Existing::Equal);
    }

    #[test]
    fn an_object_that_is_as_it_was_backed_up_is_equal_though_actions_took_something_off() {
        let service = json!({"kind": "Service", "spec": {"clusterIP": "10.0.0.1"}, "metadata": {"name": "s"}});
        let wanted = json!({"kind": "Service", "spec": {}, "metadata": {"name": "s"}});
        assert_eq!(judge(&service, &wanted, &service, &origin()), Existing::Equal);
        let mut other = service.clone();
        other["spec"]["clusterIP"] = json!("10.0.0.2");
        assert_eq!(judge(&other, &wanted, &service, &origin()), Existing::Different);
    }

    #[test]
    fn an_update_changes_what_differs_and_keeps_what_the_cluster_chose() {
        let found = json!({"spec": {"clusterIP": "10.0.0.2", "type": "ClusterIP", "extra": 1, "ports": [1]}, "metadata": {"name": "s"}});
        let original = json!({"spec": {"clusterIP": "10.0.0.1", "type": "NodePort", "ports": [2]}});
        let wanted = json!({"spec": {"type": "NodePort", "ports": [2]}, "metadata": {"name": "s",
            "labels": {"velero.io/restore-name": "r", "velero.io/backup-name": "b"}}});
        assert_eq!(
            update(&found, &wanted, &original).unwrap(),
            json!({"spec": {"type": "NodePort", "ports": [2], "extra": null},
                "metadata": {"labels": {"velero.io/restore-name": "r", "velero.io/backup-name": "b"}}})
        );
    }

    #[test]
    fn service_accounts_are_merged_and_nothing_that_is_there_is_replaced() {
        let found =
            json!({"metadata": {"labels": {"a": "1"}, "annotations": {"x": "1"}}, "secrets": [{"name": "one"}]});
        let wanted = json!({"metadata": {"labels": {"a": "2", "b": "2"}, "annotations": {"x": "2"}},
            "secrets": [{"name": "one"}, {"name": "two"}], "imagePullSecrets": [{"name": "pull"}]});
        assert_eq!(
            merge_account(&found, &wanted).unwrap(),
            json!({"metadata": {"labels": {"b": "2"}}, "secrets": [{"name": "one"}, {"name": "two"}], "imagePullSecrets": [{"name": "pull"}]})
        );
        assert_eq!(merge_account(&wanted, &found), None, "nothing is missing there");
    }
}
