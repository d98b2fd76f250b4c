//! Deserializing an object and serializing it again preserves everything.

use kube::Resource;
use plimsoll_api::kanister::v1alpha1::{ActionSet, Blueprint, Profile};
use plimsoll_api::plimsoll::v1alpha1::Operation;
use plimsoll_api::velero::v1::{
    Backup, BackupPhase, BackupRepository, BackupStorageLocation, DeleteBackupRequest, DownloadRequest,
    PodVolumeBackup, PodVolumeRestore, Restore, Schedule, ServerStatusRequest, VolumePluginBackup, VolumePluginRestore,
    VolumeSnapshotLocation,
};
use plimsoll_api::velero::v2alpha1::{DataDownload, DataUpload};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// One object of every kind, as upstream programs write them.
pub fn objects() -> Vec<Value> {
    include_str!("objects.yaml").split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

/// Deserializes an object as the type of its kind and serializes it again.
fn round_trip_by_kind(object: &Value) -> Value {
    macro_rules! dispatch {
        ($($kind:ident)*) => {
            match object["kind"].as_str().unwrap() {
                $( stringify!($kind) => round_trip::<$kind>(object), )*
                other => panic!("no type for {other}"),
            }
        };
    }
    dispatch!(
        Backup Restore Schedule BackupStorageLocation VolumeSnapshotLocation PodVolumeBackup PodVolumeRestore
        BackupRepository DeleteBackupRequest DownloadRequest ServerStatusRequest VolumePluginBackup VolumePluginRestore
        DataUpload DataDownload ActionSet Blueprint Profile Operation
    )
}

fn round_trip<K: Resource<DynamicType = ()> + Serialize + DeserializeOwned>(object: &Value) -> Value {
    assert_eq!(object["apiVersion"], *K::api_version(&()));
    serde_json::to_value(serde_json::from_value::<K>(object.clone()).unwrap()).unwrap()
}

/// Removes what Go does not distinguish from absent: null and empty lists.
fn without_absent_values(value: &Value) -> Value {
    let is_absent = |value: &Value| value.is_null() || *value == json!([]);
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !is_absent(value))
            .map(|(name, value)| (name.clone(), without_absent_values(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_absent_values).collect(),
        other => other.clone(),
    }
}

#[test]
fn there_is_an_object_of_every_kind() {
    let mut kinds: Vec<String> = objects().iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect();
    let mut defined: Vec<String> = plimsoll_api::crds().into_iter().map(|crd| crd.spec.names.kind).collect();
    kinds.sort();
    defined.sort();
    assert_eq!(kinds, defined);
}

#[test]
fn every_kind_survives_a_round_trip() {
    for object in objects() {
        let written = round_trip_by_kind(&object);
        assert_eq!(without_absent_values(&written), without_absent_values(&object), "{}", object["kind"]);
    }
}

#[test]
fn fields_of_a_newer_version_survive_at_every_level() {
    for mut object in objects() {
        add_unknown_fields(&mut object);
        let written = round_trip_by_kind(&object);
        assert_eq!(without_absent_values(&written), without_absent_values(&object), "{}", object["kind"]);
    }
}

/// Adds an unknown field to spec, status and one level below each.
fn add_unknown_fields(object: &mut Value) {
    let unknown = json!({ "list": [1, "two", { "three": 3.5 }], "flag": false, "big": 9_007_199_254_740_993_i64 });
    let top_level = object.get("spec").is_none();
    if top_level {
        object["fromTheFuture"] = unknown.clone();
    }
    for pointer in
        ["/spec", "/status", "/spec/uploaderConfig", "/spec/hooks", "/status/progress", "/spec/actions/0", "/location"]
    {
        if let Some(fields) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
            fields.insert("fromTheFuture".to_owned(), unknown.clone());
        }
    }
}

#[test]
fn a_phase_of_a_newer_version_is_preserved() {
    let object = json!({ "metadata": {}, "spec": {}, "status": { "phase": "Hibernating" } });
    let backup: Backup = serde_json::from_value(object).unwrap();
    assert_eq!(backup.phase(), BackupPhase::Other("Hibernating".to_owned()));
    assert_eq!(serde_json::to_value(&backup).unwrap()["status"]["phase"], "Hibernating");
}

#[test]
fn null_is_absent_wherever_go_writes_it() {
    let nulls = json!({
        "metadata": { "creationTimestamp": null },
        "spec": { "includedNamespaces": null, "labelSelector": null, "ttl": null, "hooks": { "resources": null } },
        "status": { "startTimestamp": null, "phase": null, "progress": null, "validationErrors": null },
    });
    let backup: Backup = serde_json::from_value(nulls).unwrap();
    assert!(backup.spec.included_namespaces.is_empty() && backup.spec.label_selector.is_none());
    let written = serde_json::to_value(&backup).unwrap();
    assert_eq!(written["spec"], json!({ "hooks": {} }));
    assert_eq!(written["status"], json!({}));
}

#[test]
fn a_time_is_parsed_in_any_rfc_3339_form_and_written_in_gos() {
    for text in ["2026-01-02T01:00:01Z", "2026-01-02T03:00:01+02:00"] {
        let object = json!({ "metadata": {}, "spec": {}, "status": { "startTimestamp": text } });
        let backup: Backup = serde_json::from_value(object).unwrap();
        assert_eq!(serde_json::to_value(&backup).unwrap()["status"]["startTimestamp"], "2026-01-02T01:00:01Z");
    }
    let precise = json!({ "metadata": {}, "spec": {}, "status": { "startTimestamp": "2026-01-02T01:00:01.5Z" } });
    let started = serde_json::from_value::<Backup>(precise).unwrap().status.unwrap().start_timestamp.unwrap();
    assert_eq!(started.0.as_millisecond() % 1000, 500);
}

#[test]
fn an_object_without_spec_and_status_is_readable() {
    let backup: Backup = serde_json::from_value(json!({ "metadata": { "name": "everything" } })).unwrap();
    assert_eq!(backup.phase(), BackupPhase::New);
    let request: ServerStatusRequest = serde_json::from_value(json!({ "metadata": {}, "spec": null })).unwrap();
    assert!(request.status.is_none());
}

#[test]
fn an_invalid_duration_does_not_make_a_list_unreadable() {
    let list = json!([{ "metadata": {}, "spec": { "ttl": "soon" } }, { "metadata": {}, "spec": { "ttl": "1h" } }]);
    let backups: Vec<Backup> = serde_json::from_value(list).unwrap();
    let readable: Vec<bool> =
        backups.iter().map(|backup| backup.spec.ttl.as_ref().unwrap().as_std().is_some()).collect();
    assert_eq!(readable, [false, true]);
}

#[test]
fn api_version_and_kind_are_written_once_for_kinds_without_a_spec() {
    let object = objects().into_iter().find(|object| object["kind"] == "Profile").unwrap();
    let profile: Profile = serde_json::from_value(object).unwrap();
    assert!(profile.spec.extra.is_empty());
    let text = serde_json::to_string(&profile).unwrap();
    assert_eq!(text.matches("\"apiVersion\":\"cr.kanister.io/v1alpha1\"").count(), 1);
}
